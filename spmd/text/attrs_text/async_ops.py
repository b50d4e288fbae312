"""async-start, async-update, async-done, copy-start, copy-done."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import AsyncAttrs, CopyStartAttrs
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter


def _read_async(values: AttrValues) -> AsyncAttrs:
    """update and done may leave ``calls`` out: the parser takes the start's computation."""
    if "calls" in values or values.opcode == Opcode.ASYNC_START.value:
        values.callee("calls")
    return AsyncAttrs(values.string("async_execution_thread"))


def _write_async(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(AsyncAttrs)
    if attrs.execution_thread and instruction.opcode is Opcode.ASYNC_START:
        out.add("async_execution_thread", f'"{attrs.execution_thread}"')
    if instruction.opcode is Opcode.ASYNC_START:
        out.callee("calls", instruction.to_apply)


def _read_copy_start(values: AttrValues) -> CopyStartAttrs:
    if "cross_program_prefetch_index" not in values:
        return CopyStartAttrs()
    return CopyStartAttrs(values.need_integer("cross_program_prefetch_index"))


attrs_text(
    Opcode.ASYNC_START, Opcode.ASYNC_UPDATE, Opcode.ASYNC_DONE, read=_read_async, write=_write_async
)
attrs_text(
    Opcode.COPY_START,
    read=_read_copy_start,
    write=lambda out, instruction: out.optional(
        "cross_program_prefetch_index",
        instruction.attrs_as(CopyStartAttrs).cross_program_prefetch_index,
    ),
)
attrs_text(Opcode.COPY_DONE)
