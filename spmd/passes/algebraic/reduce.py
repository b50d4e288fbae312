"""reduce: over nothing, over unit dimensions, over repeated dimensions, of a transpose or another reduce.

Merging two sums reassociates them (docs/numerics.md).
"""

from __future__ import annotations

import math

import numpy as np

from spmd.analysis.common_factors import common_factors
from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.reduction import identity_value, reduction_kind
from spmd.passes.algebraic.match import broadcast_dims, element_type, splat, used_once
from spmd.passes.algebraic.rules import simplifies

_IDEMPOTENT = (ReductionKind.MIN, ReductionKind.MAX, ReductionKind.AND, ReductionKind.OR)


def simple_kind(x: HloInstruction) -> ReductionKind | None:
    """Return the kind of a reduction of one input whose initial value is the neutral element, else None."""
    if x.opcode is not Opcode.REDUCE or x.num_operands != 2:
        return None
    kind, start = reduction_kind(x.to_apply), splat(x.operand(1))
    if kind is None or start is None:
        return None
    neutral = np.asarray(identity_value(kind, element_type(x)), element_type(x).numpy)
    return kind if bool(start == neutral) else None


def reduced_dims(x: HloInstruction) -> tuple[int, ...]:
    return x.attrs_as(DimensionsAttrs).dimensions


def _again(
    x: HloInstruction, operand: HloInstruction, dims: tuple[int, ...], b: Builder
) -> HloInstruction:
    """Return the same reduction over ``dims`` of another operand."""
    return b.create(
        Opcode.REDUCE, (operand, x.operand(1)), DimensionsAttrs(dims), calls=x.called_computations
    )


@simplifies(Opcode.REDUCE)
def reduce_of_units(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A reduction over dimensions of size 1 (or over none) => reshape"""
    if simple_kind(x) is None:
        return None
    operand = x.operand(0)
    if any(operand.dims[d] != 1 for d in reduced_dims(x)):
        return None
    return b.reshape(operand, x.dims) if operand.dims != x.dims else operand


@simplifies(Opcode.REDUCE)
def reduce_of_transpose(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """reduce(transpose(a)) => reduce(a) if the dimensions of the result stay in order.

    If the combiner is no known reduction, the reduced dimensions must stay in order, too: the result may depend on the
    order in which elements are combined.
    """
    inner = x.operand(0)
    if x.num_operands != 2 or inner.opcode is not Opcode.TRANSPOSE:
        return None
    order = inner.attrs_as(DimensionsAttrs).dimensions
    removed = reduced_dims(x)
    result_order = [order[d] for d in range(len(order)) if d not in removed]
    if result_order != sorted(result_order):
        return None
    reduced = [order[d] for d in sorted(removed)]
    if reduced != sorted(reduced) and reduction_kind(x.to_apply) is None:
        return None
    return _again(x, inner.operand(0), tuple(sorted(reduced)), b)


@simplifies(Opcode.REDUCE)
def reduce_of_reshape(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """reduce(reshape(a)) => reduce(a), or reshape(reduce(a)) if dimensions of the result are split or merged"""
    inner = x.operand(0)
    if x.num_operands != 2 or inner.opcode is not Opcode.RESHAPE or 0 in inner.dims:
        return None
    source = inner.operand(0)
    removed = _reduced_before(source.dims, inner.dims, reduced_dims(x))
    if not removed:
        return None
    units = [d for d, n in enumerate(source.dims) if n == 1]
    for dims in (removed, sorted((*removed, *units))):
        if tuple(n for d, n in enumerate(source.dims) if d not in dims) == x.dims:
            return _again(x, source, tuple(dims), b)
    return b.reshape(_again(x, source, tuple(removed), b), x.dims) if used_once(inner) else None


def _reduced_before(
    before: tuple[int, ...], after: tuple[int, ...], reduced: tuple[int, ...]
) -> list[int] | None:
    """Return the dimensions of ``before`` that have the same elements as the dimensions ``reduced`` of ``after``.
    Returns None if there are no such dimensions.
    """
    result: list[int] = []
    for left, right in common_factors(before, after):
        gone = [d in reduced for d in right]
        if all(gone):
            result.extend(left)
        elif any(gone):
            return None
    return result


@simplifies(Opcode.REDUCE)
def reduce_of_broadcast(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A reduction over repeated dimensions: max, min, and, or => no reduction; a sum of 2^k equal terms => times 2^k"""
    inner, kind = x.operand(0), simple_kind(x)
    if kind is None or inner.opcode is not Opcode.BROADCAST or not inner.array_shape.num_elements:
        return None
    source_dims = broadcast_dims(inner)
    repeated = [d for d in reduced_dims(x) if d not in source_dims]
    if not repeated:
        return None
    times = math.prod(inner.dims[d] for d in repeated)
    if kind not in _IDEMPOTENT and not _is_exact_sum(kind, times, x):
        return None
    return _reduce_source(x, inner, repeated, times if kind is ReductionKind.SUM else 1, b)


def _is_exact_sum(kind: ReductionKind, times: int, x: HloInstruction) -> bool:
    """Return whether the sum is exact in every order: its terms are integers, or 2^k equal numbers."""
    if kind is not ReductionKind.SUM or element_type(x).bits < 16 or times > 2**14:
        return False
    return element_type(x).is_integer or times & (times - 1) == 0


def _reduce_source(
    x: HloInstruction, inner: HloInstruction, repeated: list[int], times: int, b: Builder
) -> HloInstruction | None:
    """Broadcast the operand along the dimensions of the result only, reduce the other ones, and scale."""
    dims = [d for d in range(inner.array_shape.rank) if d not in repeated]
    new_dim = {d: i for i, d in enumerate(dims)}
    value = inner.operand(0)
    smaller = b.broadcast(
        value, [new_dim[d] for d in broadcast_dims(inner)], [inner.dims[d] for d in dims]
    )
    left = tuple(new_dim[d] for d in reduced_dims(x) if d not in repeated)
    if left:
        smaller = _again(x, smaller, left, b)
    return smaller if times == 1 else b.multiply(smaller, b.full(x.array_shape, times))


@simplifies(Opcode.REDUCE)
def reduce_of_reduce(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """reduce(reduce(a)) => reduce(a) over the dimensions of both"""
    inner, kind = x.operand(0), simple_kind(x)
    if kind is None or simple_kind(inner) is not kind or not used_once(inner):
        return None
    first = reduced_dims(inner)
    left = [d for d in range(inner.operand(0).array_shape.rank) if d not in first]
    both = sorted((*first, *(left[d] for d in reduced_dims(x))))
    return _again(x, inner.operand(0), tuple(both), b)


@simplifies(Opcode.REDUCE)
def reduce_of_nothing(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A reduction of an empty operand => the initial value"""
    if (
        x.num_operands != 2
        or x.operand(0).array_shape.num_elements
        or not x.array_shape.num_elements
    ):
        return None
    return b.broadcast_scalar(x.operand(1), x.dims)
