"""Choice of the innermost loop of a row kernel: along a row, or over neighbouring rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.program.records.loop import Numbers, OperandElements
from runtime.program.records.rows import PassLeaves, RowFusion
from runtime.program.strides import (
    FEW_NEIGHBOURS,
    MOST_STRIDE,
    VECTOR_LENGTH,
    StridedView,
    long_one_last,
    merged_dims,
)

#: Neighbouring rows that are few if they exceed the caches, since each goes over the memory of all of them again.
FEW_FROM_MEMORY = 4
#: Bytes in which a row may lie to be found in a cache by its neighbours.
CACHED_BYTES = 2 << 20
#: Most elements of a row for which a vector of neighbouring rows is computed at a time (Zen 5: norms of rows of 2
#: take 0.4 of the time, of rows of 4 0.7, of rows of 6 the same).
SHORT_ROW = 4


def runs_along_rows(fusion: RowFusion, leaves: Sequence[PassLeaves]) -> bool:
    """Return whether the innermost loop runs along a row, not over one element of neighbouring rows.

    Mostly it runs where memory does. Both exceptions are for vectors that would be mostly empty.
    """
    if fusion.along_rows:
        return fusion.row_length > SHORT_ROW or not _has_neighbours(fusion, leaves)
    return _reads_in_strides(fusion, leaves)


def _has_neighbours(fusion: RowFusion, leaves: Sequence[PassLeaves]) -> bool:
    """Return whether a loop over rows is long enough to fill vectors."""
    if fusion.cached:  # scratch holds one row
        return False
    counted = fusion.counted
    strides = [
        [view.strides[d] for d in counted]
        if len(view.dims) == len(fusion.dims)
        else list(view.strides)
        for view in (*_views(leaves), *fusion.results)
    ]
    sizes, merged = merged_dims([fusion.dims[d] for d in counted], strides)
    return any(sizes[d] >= VECTOR_LENGTH for d in long_one_last(sizes, merged)[-1:])


def _views(leaves: Sequence[PassLeaves]) -> list[StridedView]:
    every = [leaf for each in leaves for leaf in (*each.elements, *each.inits, *each.rows)]
    return [leaf.view for leaf in every if isinstance(leaf, Numbers | OperandElements)]


def _reads_in_strides(fusion: RowFusion, leaves: Sequence[PassLeaves]) -> bool:
    """Return whether so few rows are contiguous that vectors of them would be mostly empty, and strides are small.

    Measured: along rows the sum over the first dimension of [100000,4] takes an eighth of the time, that over the
    second one of [300,300,3] a tenth.
    """
    if len(fusion.passes) > 1:
        return False
    last = max(fusion.axes)
    neighbours = math.prod(fusion.dims[last + 1 :])
    if neighbours > FEW_NEIGHBOURS or fusion.row_length < VECTOR_LENGTH:
        return False
    views = [
        leaf.view
        for leaf in leaves[0].elements
        if isinstance(leaf, Numbers | OperandElements) and len(leaf.view.dims) == len(fusion.dims)
    ]
    if any(abs(view.strides[last]) > MOST_STRIDE for view in views):
        return False
    is_cached = sum(_span(fusion, view) for view in views) <= CACHED_BYTES
    return is_cached or neighbours <= FEW_FROM_MEMORY


def _span(fusion: RowFusion, view: StridedView) -> int:
    """Return the bytes from the first to the last element of a row."""
    return sum(abs(view.strides[d]) * (fusion.dims[d] - 1) for d in fusion.axes)
