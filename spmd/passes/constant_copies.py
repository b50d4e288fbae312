"""Constants that are cheaper made again where they are read than handed in from outside."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode


def is_small_constant(value: HloInstruction, max_bytes: int) -> bool:
    """Return whether ``x`` is a constant of at most ``max_bytes``, possibly broadcast."""
    if value.opcode is Opcode.BROADCAST:
        value = value.operand(0)
    return value.opcode is Opcode.CONSTANT and value.shape.byte_size <= max_bytes


def copy_constant(value: HloInstruction, builder: Builder) -> HloInstruction:
    """Copy the constant ``value`` into the builder's computation."""
    operands = [copy_constant(operand, builder) for operand in value.operands]
    return builder.computation.add(value.clone(value.shape, operands))
