"""Evaluation of reduce and map.

XLA leaves the association of a reduction open. Known operations reduce with NumPy in the working type (f32 for narrower
floats, rounded once at the end): sums pairwise, so that the error grows with log n. The same holds for known operations
on a total and a function of the element. Any other reducer is folded in XLA's argument order, which matters if it is
not associative: totals, which start from the initial values, are its first arguments and elements its last, in f32 if
it rounds to narrower floats. If there are many elements, the totals of groups are combined in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spmd.device import ReductionKind
from spmd.evaluator.numerics import narrow, widen
from spmd.evaluator.pointwise import (
    UFUNCS,
    apply_scalar,
    identity,
    in_working_types,
    made_of_elements,
)
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of, packed
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.combining import Combining, combinings
from spmd.ops.reduction import reduction_kind

#: Number of rows that are summed one after the other before partial sums are summed.
_BLOCK = 64
#: Largest number of elements that any other reducer combines one after the other.
_STEPS = 4096


@evaluates(Opcode.REDUCE)
def evaluate_reduce(instruction: HloInstruction, operands: Operands) -> Value:
    arrays = arrays_of(operands)
    inputs, inits = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]
    dimensions = instruction.attrs_as(DimensionsAttrs).dimensions
    kind = reduction_kind(instruction.to_apply)
    if kind is not None:
        (x,), (init,) = inputs, inits
        total = reduce_known(kind, widen(x), dimensions)
        return packed([narrow(UFUNCS[kind](widen(init), total), x.dtype)], instruction.shape)
    found = combinings(instruction.to_apply)
    if found is not None:
        totals = _reduce_elements(instruction.to_apply, found, inputs, inits, dimensions)
    else:
        totals = _reduce_any(instruction.to_apply, inputs, inits, dimensions)
    return packed(totals, instruction.shape)


def reduce_known(kind: ReductionKind, x: NDArray, dimensions: tuple[int, ...]) -> NDArray:
    """Reduce over ``dimensions`` with a known operation; x is in a working type."""
    ufunc = UFUNCS[kind]
    if not dimensions:
        return x
    count = math.prod(x.shape[d] for d in dimensions)
    if count == 0:
        sizes = [n for d, n in enumerate(x.shape) if d not in dimensions]
        return np.broadcast_to(identity(kind, x.dtype), sizes)
    if kind is not ReductionKind.SUM or x.dtype.kind not in "fc" or count <= _BLOCK:
        if x.dtype == np.bool_ and ufunc is np.bitwise_and:
            return np.asarray(np.logical_and.reduce(x, axis=dimensions))
        if kind is ReductionKind.SUM:
            return _sum(x, dimensions)
        return np.asarray(ufunc.reduce(x, axis=dimensions, dtype=x.dtype))
    return _pairwise_sum(x, dimensions)


def _sum(x: NDArray, axes: int | tuple[int, ...]) -> NDArray:
    """Sum; keep the sign if all terms are -0. NumPy starts floating sums from +0 and would lose it."""
    return np.asarray(
        np.add.reduce(x, axis=axes, dtype=x.dtype, initial=identity(ReductionKind.SUM, x.dtype))
    )


def _pairwise_sum(x: NDArray, dimensions: tuple[int, ...]) -> NDArray:
    """Sum over many elements; NumPy itself is pairwise only along the innermost dimension."""
    dims = [d for d in range(x.ndim) if d not in dimensions]
    sizes = [x.shape[d] for d in dims]
    count = math.prod(x.shape[d] for d in dimensions)
    if sorted(dimensions) == list(range(len(dims), x.ndim)):
        return _sum(np.ascontiguousarray(x).reshape([*sizes, count]), -1)
    rows = x.transpose([*sorted(dimensions), *dims])
    rows = rows.reshape([count, *sizes])
    while rows.shape[0] > _BLOCK:
        half, odd = divmod(rows.shape[0], 2)
        folded = rows[:half] + rows[half : 2 * half]
        if odd:
            folded[0] += rows[-1]
        rows = folded
    return _sum(rows, 0)


def _reduce_elements(
    reducer: HloComputation,
    found: Sequence[Combining],
    inputs: Sequence[NDArray],
    inits: Sequence[NDArray],
    dimensions: tuple[int, ...],
) -> list[NDArray]:
    """Return each result as a known reduction of the part that the reducer computes from the elements."""
    totals = []
    for x, init, made in zip(found, inits, made_of_elements(reducer, found, inputs), strict=True):
        total = reduce_known(x.kind, widen(made), dimensions)
        totals.append(narrow(UFUNCS[x.kind](widen(init), total), init.dtype))
    return totals


def _reduce_any(
    reducer: HloComputation,
    inputs: Sequence[NDArray],
    inits: Sequence[NDArray],
    dimensions: tuple[int, ...],
) -> list[NDArray]:
    rank = inputs[0].ndim
    dims = [d for d in range(rank) if d not in dimensions]
    sizes = [inputs[0].shape[d] for d in dims]
    count = math.prod(inputs[0].shape[d] for d in dimensions)
    rows = [x.transpose([*sorted(dimensions), *dims]).reshape([count, *sizes]) for x in inputs]
    reducer, start, rows = in_working_types(reducer, inits, rows)
    if count > _STEPS:
        rows = _totals_of_lanes(reducer, rows, start)
    totals = reduce_sequentially(reducer, start, rows)
    return [narrow(total, init.dtype) for total, init in zip(totals, inits, strict=True)]


def reduce_sequentially(
    reducer: HloComputation, start: Sequence[NDArray], rows: Sequence[NDArray]
) -> list[NDArray]:
    """Combine ``start`` with the rows of dimension 0, one after the other, as elements."""
    totals = [np.broadcast_to(s, r.shape[1:]) for s, r in zip(start, rows, strict=True)]
    for k in range(rows[0].shape[0]):
        totals = apply_scalar(reducer, [*totals, *(r[k, ...] for r in rows)])
    return [np.broadcast_to(t, r.shape[1:]) for t, r in zip(totals, rows, strict=True)]


def _totals_of_lanes(
    reducer: HloComputation, rows: Sequence[NDArray], inits: Sequence[NDArray]
) -> list[NDArray]:
    """Reduce n rows to about sqrt(n): the totals of groups of neighbouring rows.

    Totals start from the initial values if these combine to themselves, else from the first row of each group.
    """
    count, rest = rows[0].shape[0], rows[0].shape[1:]
    length = math.isqrt(count)
    groups = count // length
    combined = apply_scalar(reducer, [*inits, *inits])
    neutral = all(c.tobytes() == i.tobytes() for c, i in zip(combined, inits, strict=True))

    def totals(part: list[NDArray]) -> list[NDArray]:
        """Return the total of each group; the rows of ``part`` are [steps, groups, ...]."""
        if neutral:
            return reduce_sequentially(reducer, inits, part)
        return reduce_sequentially(reducer, [r[0] for r in part], [r[1:] for r in part])

    grouped = [r[: groups * length].reshape(groups, length, *rest).swapaxes(0, 1) for r in rows]
    made = totals(grouped)
    if groups * length < count:
        left = totals([r[groups * length :, None] for r in rows])
        made = [np.concatenate(parts) for parts in zip(made, left, strict=True)]
    return made


@evaluates(Opcode.MAP)
def evaluate_map(instruction: HloInstruction, operands: Operands) -> Value:
    (result,) = apply_scalar(instruction.to_apply, arrays_of(operands))
    return np.broadcast_to(result, instruction.dims)
