"""Evaluation of sort and topk.

A comparator that orders by keys, ``f(a) < f(b)`` with ties broken by further keys, sorts by computing the keys once.
Any other comparator runs in a sorting network (Batcher's merge exchange, Knuth 5.2.2 M): log^2 n rounds, each one
application of the comparator to entire arrays; ties keep their order, so the sort is stable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from spmd.evaluator.numerics import total_order_keys
from spmd.evaluator.pointwise import apply_scalar
from spmd.evaluator.registry import evaluates
from spmd.evaluator.sort_keys import SortKey, match_sort_keys
from spmd.evaluator.value import NDArray, Operands, Value, array_of, arrays_of, packed
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import SortAttrs, TopKAttrs


@evaluates(Opcode.SORT)
def evaluate_sort(instruction: HloInstruction, operands: Operands) -> Value:
    arrays = arrays_of(operands)
    axis = instruction.attrs_as(SortAttrs).dimension
    keys = match_sort_keys(instruction.to_apply)
    if keys is not None:
        order = _order_by_keys(keys, arrays, axis)
        return packed([np.take_along_axis(x, order, axis) for x in arrays], instruction.shape)
    rows = [np.moveaxis(x, axis, 0) for x in arrays]
    results = [np.moveaxis(r, 0, axis) for r in _network_sort(instruction.to_apply, rows)]
    return packed(results, instruction.shape)


def _order_by_keys(keys: Sequence[SortKey], arrays: Sequence[NDArray], axis: int) -> NDArray:
    columns = []
    for key in keys:
        values = np.broadcast_to(key.compute(arrays), arrays[0].shape)
        if not key.total_order and values.dtype.kind not in "iub":
            values = values + values.dtype.type(0)  # -0 and +0 compare equal
        column = total_order_keys(values)
        columns.append(np.invert(column) if key.descending else column)
    if len(columns) == 1:
        return np.argsort(columns[0], axis=axis, kind="stable")
    return np.lexsort(columns[::-1], axis=axis)


def _network_sort(comparator: HloComputation, rows: Sequence[NDArray]) -> list[NDArray]:
    """Sort along dimension 0 by a sorting network."""
    n = rows[0].shape[0]
    position = np.broadcast_to(np.arange(n).reshape([-1] + [1] * (rows[0].ndim - 1)), rows[0].shape)
    state = [np.array(r) for r in (*rows, position)]
    for low, distance in _merge_exchange(n):
        high = low + distance
        swap = _out_of_order(comparator, [s[low] for s in state], [s[high] for s in state])
        for s in state:
            first, second = s[low], s[high]
            s[low], s[high] = np.where(swap, second, first), np.where(swap, first, second)
    return state[:-1]


def _out_of_order(
    comparator: HloComputation, first: Sequence[NDArray], second: Sequence[NDArray]
) -> NDArray:
    """Return where ``second`` must precede ``first``; the last array of each holds original positions, for ties."""
    after = _less(comparator, second[:-1], first[:-1])
    before = _less(comparator, first[:-1], second[:-1])
    return np.asarray(after | (~before & (second[-1] < first[-1])))


def _less(comparator: HloComputation, a: Sequence[NDArray], b: Sequence[NDArray]) -> NDArray:
    interleaved = [x for pair in zip(a, b, strict=True) for x in pair]
    (result,) = apply_scalar(comparator, interleaved)
    return result


def _merge_exchange(n: int) -> Iterator[tuple[NDArray, int]]:
    """Yield rounds of a sorting network: positions to compare with those ``distance`` further on."""
    top = 1 << max(n - 1, 0).bit_length() >> 1
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            positions = np.arange(max(n - d, 0))
            yield positions[(positions & p) == r], d
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1


@evaluates(Opcode.TOPK)
def evaluate_topk(instruction: HloInstruction, operands: Operands) -> Value:
    """Return the k largest (smallest) along the last dimension in order, and their positions; equal values by position.

    NaN is larger than every number (total order).
    """
    attrs = instruction.attrs_as(TopKAttrs)
    return top_k(array_of(operands[0]), attrs.k, attrs.largest)


def top_k(x: NDArray, k: int, largest: bool) -> tuple[NDArray, NDArray]:
    keys = total_order_keys(x)
    order = np.argsort(np.invert(keys) if largest else keys, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)
