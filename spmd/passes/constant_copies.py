"""Constants that are cheaper made again where they are read than handed in from outside."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode

#: Larger constants are handed in.
_MAX_BYTES = 1024


def is_small_constant(value: HloInstruction) -> bool:
    """Return whether ``value`` is a small constant, possibly broadcast."""
    if value.opcode is Opcode.BROADCAST:
        value = value.operand(0)
    return value.opcode is Opcode.CONSTANT and value.shape.byte_size <= _MAX_BYTES


def copy_constant(value: HloInstruction, builder: Builder) -> HloInstruction:
    """Copy the constant ``value`` into the builder's computation."""
    operands = [copy_constant(operand, builder) for operand in value.operands]
    return builder.computation.add(value.clone(value.shape, operands))
