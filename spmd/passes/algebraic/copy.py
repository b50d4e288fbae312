"""Values that only change hands. Before scheduling a copy has no meaning; layout and copy insertion come later."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.checks import same_type
from spmd.passes.algebraic.rules import simplifies


@simplifies(Opcode.COPY)
def copy_is_identity(x: HloInstruction, _: Builder) -> HloInstruction | None:
    return x.operand(0)


@simplifies(Opcode.BITCAST)
def bitcast_to_itself(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """A bitcast to the same shape, layout included => the operand"""
    return x.operand(0) if x.shape == x.operand(0).shape else None


@simplifies(Opcode.BITCAST_CONVERT)
def bitcast_convert_to_itself(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """bitcast-convert to the same type => x; to another type and back => x"""
    operand = x.operand(0)
    if same_type(x.shape, operand.shape):
        return operand
    back = operand.opcode is Opcode.BITCAST_CONVERT and same_type(x.shape, operand.operand(0).shape)
    return operand.operand(0) if back else None


@simplifies(Opcode.REDUCE_PRECISION)
def reduce_precision_to_itself(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """Reducing twice to one precision => once"""
    inner = x.operand(0)
    return inner if inner.opcode is Opcode.REDUCE_PRECISION and inner.attrs == x.attrs else None
