"""dot: transposes of its operands become dimension numbers; products over nothing are zero."""

from __future__ import annotations

from dataclasses import replace

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, DotAttrs
from spmd.ops.dot import free_dims
from spmd.passes.algebraic.rules import simplifies


@simplifies(Opcode.DOT)
def fold_transposes(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """dot(transpose(a), b) => dot(a, b) with other dimension numbers, where the free dimensions stay in order"""
    attrs = x.attrs_as(DotAttrs)
    if attrs.extra:
        return None
    left = _unfolded(x.operand(0), attrs.lhs_batch, attrs.lhs_contracting)
    right = _unfolded(x.operand(1), attrs.rhs_batch, attrs.rhs_contracting)
    if left is None and right is None:
        return None
    lhs, rhs = x.operands
    if left is not None:
        lhs, batch, contracting = left
        attrs = replace(attrs, lhs_batch=batch, lhs_contracting=contracting)
    if right is not None:
        rhs, batch, contracting = right
        attrs = replace(attrs, rhs_batch=batch, rhs_contracting=contracting)
    return b.dot(lhs, rhs, attrs, x.array_shape.element_type)


Folded = tuple[HloInstruction, tuple[int, ...], tuple[int, ...]]


def _unfolded(
    operand: HloInstruction, batch: tuple[int, ...], contracting: tuple[int, ...]
) -> Folded | None:
    if operand.opcode is not Opcode.TRANSPOSE:
        return None
    order = operand.attrs_as(DimensionsAttrs).dimensions
    free = [order[d] for d in free_dims(len(order), batch, contracting)]
    if free != sorted(free):
        return None
    return operand.operand(0), tuple(order[d] for d in batch), tuple(order[d] for d in contracting)


@simplifies(Opcode.DOT)
def dot_over_nothing(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """Contracting no elements => 0"""
    empty = not x.operand(0).array_shape.num_elements or not x.operand(1).array_shape.num_elements
    return b.full(x.array_shape, 0) if empty and x.array_shape.num_elements else None
