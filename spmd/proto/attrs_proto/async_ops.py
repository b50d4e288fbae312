"""async-start, async-update, async-done, copy-start, copy-done."""

from __future__ import annotations

from dataclasses import replace

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import AsyncAttrs, CopyStartAttrs
from spmd.proto.attrs_proto.aliasing import read_aliasing, write_aliasing
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.schema.hlo import HloInstructionProto

MAIN_THREAD = "main"


def _read_async(values: ProtoValues) -> AsyncAttrs:
    """Read the attributes. The proto does not distinguish the short syntax from the long one; XLA prints the short one
    if it can.
    """
    if values.num_callees != 1:
        raise HloParseError(f"{values.proto.opcode} needs its wrapped computation")
    thread = values.proto.async_execution_thread
    return AsyncAttrs("" if thread == MAIN_THREAD else thread, sugar=True)


def _read_start(values: ProtoValues) -> AsyncAttrs:
    aliasing = read_aliasing(values.proto)
    return replace(_read_async(values), output_to_operand_aliasing=aliasing)


def _read_continued(values: ProtoValues) -> AsyncAttrs:
    """Read async-update or async-done, to which the reader has given the start's computation."""
    first = values.operands[0].opcode if values.operands else None
    if first not in (Opcode.ASYNC_START, Opcode.ASYNC_UPDATE):
        raise HloParseError(f"{values.proto.opcode} follows an async-start or async-update")
    return _read_async(values)


def _write_start(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    _write_async(proto, instruction)
    write_aliasing(proto, instruction.attrs_as(AsyncAttrs).output_to_operand_aliasing)


def _write_async(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.async_execution_thread = instruction.attrs_as(AsyncAttrs).execution_thread


def _read_copy_start(values: ProtoValues) -> CopyStartAttrs:
    """Read the prefetch index. Older versions wrote a flag instead of the index 0."""
    index = values.proto.cross_program_prefetch_index
    if index is None and values.proto.is_cross_program_prefetch:
        index = 0
    return CopyStartAttrs(index)


def _write_copy_start(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    index = instruction.attrs_as(CopyStartAttrs).cross_program_prefetch_index
    proto.cross_program_prefetch_index = index


attrs_proto(Opcode.ASYNC_START, read=_read_start, write=_write_start, callees=1)
attrs_proto(
    Opcode.ASYNC_UPDATE, Opcode.ASYNC_DONE, read=_read_continued, write=_write_async, callees=None
)
attrs_proto(Opcode.COPY_START, read=_read_copy_start, write=_write_copy_start)
attrs_proto(Opcode.COPY_DONE)
