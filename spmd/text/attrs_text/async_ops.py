"""async-start, async-update, async-done, copy-start, copy-done."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import Aliasing, AsyncAttrs, CopyStartAttrs
from spmd.text.alias_text import format_output_to_operand, read_output_to_operand
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter


def _read_async(values: AttrValues) -> AsyncAttrs:
    """Read the attributes. update and done may omit ``calls``: the parser gives them the start's computation."""
    is_start = values.opcode == Opcode.ASYNC_START.value
    if "calls" in values or is_start:
        values.callee("calls")
    return AsyncAttrs(
        values.string("async_execution_thread"),
        output_to_operand_aliasing=read_start_aliasing(values) if is_start else (),
    )


def read_start_aliasing(values: AttrValues) -> Aliasing:
    """Read which parts of a start's result share memory with its operands."""
    return values.read("output_to_operand_aliasing", read_output_to_operand, ())


def write_start_aliasing(out: AttrWriter, attrs: AsyncAttrs) -> None:
    if attrs.output_to_operand_aliasing:
        text = format_output_to_operand(attrs.output_to_operand_aliasing)
        out.add("output_to_operand_aliasing", text)


def _write_async(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(AsyncAttrs)
    if attrs.execution_thread and instruction.opcode is Opcode.ASYNC_START:
        out.add("async_execution_thread", f'"{attrs.execution_thread}"')
    if instruction.opcode is Opcode.ASYNC_START:
        write_start_aliasing(out, attrs)
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
