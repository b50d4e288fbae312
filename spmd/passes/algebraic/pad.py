"""pad: no padding, negative padding, padding with the value that is there already."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import PadAttrs
from spmd.passes.algebraic.rules import simplifies


@simplifies(Opcode.PAD)
def pad_by_nothing(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A pad by 0 => x; a pad by negative amounts alone => slice"""
    operand, attrs = x.operand(0), x.attrs_as(PadAttrs)
    gaps = [n > 0 and size > 1 for n, size in zip(attrs.interior, operand.dims, strict=True)]
    if any(gaps) or any(n > 0 for n in (*attrs.low, *attrs.high)):
        return None
    if not any((*attrs.low, *attrs.high)):
        return operand
    limits = [size + high for size, high in zip(operand.dims, attrs.high, strict=True)]
    starts = [-low for low in attrs.low]
    if any(s > e for s, e in zip(starts, limits, strict=True)):
        return None
    return b.slice(operand, starts, limits)


@simplifies(Opcode.PAD)
def pad_of_empty(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A pad of an empty array => the broadcast padding value"""
    return (
        None if x.operand(0).array_shape.num_elements else b.broadcast_scalar(x.operand(1), x.dims)
    )
