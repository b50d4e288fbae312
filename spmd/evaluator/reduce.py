"""reduce and map.

XLA lets a reduction associate as it likes. Known operations reduce with NumPy in the working type (f32 for narrower
floats, rounded once at the end): sums pairwise, so that the error grows with log n. Any other reducer combines
neighbours, then neighbours of the results, and so on: its order of operands is kept, its grouping is a tree.
The initial value comes in once, at the end, from the left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spmd.device import ReductionKind
from spmd.evaluator.numerics import narrow, widen
from spmd.evaluator.pointwise import UFUNCS, apply_scalar, identity
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of, packed
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.reduction import reduction_kind

#: Rows that are summed one after the other before sums of sums are taken.
_BLOCK = 64


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
    return packed(_reduce_any(instruction.to_apply, inputs, inits, dimensions), instruction.shape)


def reduce_known(kind: ReductionKind, x: NDArray, dimensions: tuple[int, ...]) -> NDArray:
    """Reduce over ``dimensions`` with a known operation; x in a working type."""
    ufunc = UFUNCS[kind]
    if not dimensions:
        return x
    count = math.prod(x.shape[d] for d in dimensions)
    if count == 0:
        kept = [n for d, n in enumerate(x.shape) if d not in dimensions]
        return np.broadcast_to(identity(kind, x.dtype), kept)
    if kind is not ReductionKind.SUM or x.dtype.kind not in "fc" or count <= _BLOCK:
        if x.dtype == np.bool_ and ufunc is np.bitwise_and:
            return np.asarray(np.logical_and.reduce(x, axis=dimensions))
        if kind is ReductionKind.SUM:
            return _sum(x, dimensions)
        return np.asarray(ufunc.reduce(x, axis=dimensions, dtype=x.dtype))
    return _pairwise_sum(x, dimensions)


def _sum(x: NDArray, axes: int | tuple[int, ...]) -> NDArray:
    """NumPy starts floating sums from +0, and so would lose the sign where all terms are -0."""
    return np.asarray(
        np.add.reduce(x, axis=axes, dtype=x.dtype, initial=identity(ReductionKind.SUM, x.dtype))
    )


def _pairwise_sum(x: NDArray, dimensions: tuple[int, ...]) -> NDArray:
    """Sum over many elements; NumPy itself is pairwise only along the innermost dimension."""
    kept = [d for d in range(x.ndim) if d not in dimensions]
    kept_sizes = [x.shape[d] for d in kept]
    count = math.prod(x.shape[d] for d in dimensions)
    if sorted(dimensions) == list(range(len(kept), x.ndim)):
        return _sum(np.ascontiguousarray(x).reshape([*kept_sizes, count]), -1)
    rows = x.transpose([*sorted(dimensions), *kept])
    rows = rows.reshape([count, *kept_sizes])
    while rows.shape[0] > _BLOCK:
        half, odd = divmod(rows.shape[0], 2)
        folded = rows[:half] + rows[half : 2 * half]
        if odd:
            folded[0] += rows[-1]
        rows = folded
    return _sum(rows, 0)


def _reduce_any(
    reducer: HloComputation,
    inputs: Sequence[NDArray],
    inits: Sequence[NDArray],
    dimensions: tuple[int, ...],
) -> list[NDArray]:
    rank = inputs[0].ndim
    kept = [d for d in range(rank) if d not in dimensions]
    kept_sizes = [inputs[0].shape[d] for d in kept]
    count = math.prod(inputs[0].shape[d] for d in dimensions)
    rows = [x.transpose([*sorted(dimensions), *kept]).reshape([count, *kept_sizes]) for x in inputs]
    start = [np.broadcast_to(init, kept_sizes) for init in inits]
    if rows[0].shape[0] == 0:
        return [np.array(s) for s in start]
    total = fold_rows(reducer, rows)
    return [np.broadcast_to(r, kept_sizes) for r in apply_scalar(reducer, [*start, *total])]


def fold_rows(reducer: HloComputation, rows: Sequence[NDArray]) -> list[NDArray]:
    """Combine along dimension 0 (at least one row), neighbours first."""
    rows = list(rows)
    while rows[0].shape[0] > 1:
        pairs = rows[0].shape[0] // 2
        left, right = [r[0 : 2 * pairs : 2] for r in rows], [r[1 : 2 * pairs : 2] for r in rows]
        combined = [
            np.broadcast_to(c, left[0].shape) for c in apply_scalar(reducer, [*left, *right])
        ]
        rest = [r[2 * pairs :] for r in rows]
        rows = [
            np.concatenate(part) if part[1].size else part[0]
            for part in zip(combined, rest, strict=True)
        ]
    return [r[0, ...] for r in rows]


@evaluates(Opcode.MAP)
def evaluate_map(instruction: HloInstruction, operands: Operands) -> Value:
    (result,) = apply_scalar(instruction.to_apply, arrays_of(operands))
    return np.broadcast_to(result, instruction.dims)
