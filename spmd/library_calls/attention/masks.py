"""Masks of attention, as comparisons of positions: whether a query sees a key."""

from __future__ import annotations

from functools import reduce

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.library_calls.arithmetic import number_like
from spmd.library_calls.attention.call import AttentionMask
from spmd.library_calls.attention.named_dimensions import NamedArray
from spmd.shape import PrimitiveType


def visible(
    mask: AttentionMask, scores: NamedArray, lengths: dict[str, HloInstruction], b: Builder
) -> HloInstruction | None:
    """Return a pred of the dimensions of ``scores``: whether query s sees key t; None if each sees all.

    lengths: integers [b] by the name, s or t, of the dimension that they limit.
    """
    conditions = list(_between_positions(mask, scores.size("s"), scores.size("t"), b))
    for name, length in lengths.items():
        dims = (length.dims[0], scores.size(name))
        positions = b.iota(length.array_shape.element_type, dims, 1)
        inside = b.compare(positions, b.broadcast(length, (0,), dims), "LT")
        conditions.append(NamedArray(inside, f"b{name}"))
    if not conditions:
        return None
    return reduce(b.logical_and, (one.broadcast(scores, b) for one in conditions))


def _between_positions(
    mask: AttentionMask, queries: int, keys: int, b: Builder
) -> list[NamedArray]:
    """Return the conditions on the positions of query and key."""
    if not mask.causal and not mask.window:
        return []
    query, key = (b.iota(PrimitiveType.S32, (queries, keys), dimension) for dimension in (0, 1))
    found = [b.compare(key, query, "LE")] if mask.causal else []
    if mask.window:
        first = b.subtract(query, number_like(query, mask.window, b))
        found.append(b.compare(key, first, "GT"))
    return [NamedArray(condition, "st") for condition in found]
