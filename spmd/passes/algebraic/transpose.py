"""transpose: no-ops, chains, and transposes of values that can be made in the other order."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, DotAttrs
from spmd.passes.algebraic.match import used_once
from spmd.passes.algebraic.rules import simplifies
from spmd.passes.rewrite import is_annotated


def order_of(x: HloInstruction) -> tuple[int, ...]:
    return x.attrs_as(DimensionsAttrs).dimensions


@simplifies(Opcode.TRANSPOSE)
def transpose_to_itself(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A transpose that keeps the order => x; one that moves only unit dimensions => reshape"""
    order, operand = order_of(x), x.operand(0)
    if list(order) == sorted(order):
        return operand
    moved = [d for d in order if operand.dims[d] != 1]
    return b.reshape(operand, x.dims) if moved == sorted(moved) else None


@simplifies(Opcode.TRANSPOSE)
def transpose_of_transpose(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """transpose(transpose(a)) => transpose(a)"""
    inner = x.operand(0)
    if inner.opcode is not Opcode.TRANSPOSE:
        return None
    first = order_of(inner)
    return b.transpose(inner.operand(0), [first[d] for d in order_of(x)])


@simplifies(Opcode.TRANSPOSE)
def transpose_of_dot(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """transpose(dot(a, b)) => dot(b, a) if it exchanges the free dimensions of the two"""
    dot = x.operand(0)
    if dot.opcode is not Opcode.DOT or not used_once(dot):
        return None
    attrs = dot.attrs_as(DotAttrs)
    if attrs.extra or len(set(attrs.operand_precision)) > 1:
        return None
    batch = len(attrs.lhs_batch)
    lhs_free = dot.operand(0).array_shape.rank - batch - len(attrs.lhs_contracting)
    rank = dot.array_shape.rank
    swapped = (*range(batch), *range(batch + lhs_free, rank), *range(batch, batch + lhs_free))
    if order_of(x) != swapped:
        return None
    return _mirrored(dot, b)


def _mirrored(dot: HloInstruction, b: Builder) -> HloInstruction:
    """Return dot(b, a) for dot(a, b)."""
    attrs = dot.attrs_as(DotAttrs)
    mirrored = DotAttrs(
        attrs.rhs_contracting,
        attrs.lhs_contracting,
        attrs.rhs_batch,
        attrs.lhs_batch,
        attrs.operand_precision,
        attrs.algorithm,
    )
    return b.dot(dot.operand(1), dot.operand(0), mirrored, dot.array_shape.element_type)


@simplifies(Opcode.TRANSPOSE)
def transpose_keeps_rows(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """transpose(dot(a, b)) => transpose(dot(b, a)) if the innermost dimension then stays innermost: contiguous rows are
    moved
    """
    dot, order = x.operand(0), order_of(x)
    if dot.opcode is not Opcode.DOT or not used_once(dot) or not x.array_shape.num_elements:
        return None
    attrs = dot.attrs_as(DotAttrs)
    if attrs.extra or len(set(attrs.operand_precision)) > 1 or is_annotated(dot):
        return None
    batch = len(attrs.lhs_batch)
    second = dot.operand(0).array_shape.rank - len(attrs.lhs_contracting)
    left, right = range(batch, second), range(second, len(dot.dims))
    wanted = next((d for d in reversed(order) if dot.dims[d] != 1), -1)
    if wanted not in left or not any(dot.dims[d] != 1 for d in right):
        return None
    if any(dot.dims[d] != 1 for d in left if d > wanted):
        return None
    new_dim = {d: i for i, d in enumerate((*range(batch), *right, *left))}
    return b.transpose(_mirrored(dot, b), [new_dim[d] for d in order])
