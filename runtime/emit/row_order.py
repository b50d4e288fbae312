"""Choice of the innermost loop of a row kernel: along a row, or over adjacent rows."""

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
)

#: Most adjacent rows that are processed one by one if together they exceed the cache: each row then reads the memory of
#: all of them again.
FEW_FROM_MEMORY = 4
#: Largest span of a row's arrays in bytes that is assumed to stay in a cache until the adjacent rows are processed.
CACHED_BYTES = 2 << 20


def runs_along_rows(fusion: RowFusion, leaves: Sequence[PassLeaves]) -> bool:
    """Return whether the innermost loop runs along a row instead of over the same element of adjacent rows.

    Usually it runs along contiguous memory. If vectors of adjacent rows would be mostly empty, it runs along rows with
    small strides.
    """
    return fusion.along_rows or _reads_in_strides(fusion, leaves)


def _reads_in_strides(fusion: RowFusion, leaves: Sequence[PassLeaves]) -> bool:
    """Return whether vectors of adjacent rows would be mostly empty, while elements of a row have small strides.

    Measured: along rows the sum over the first dimension of [100000,4] takes an eighth of the time, the sum over the
    second dimension of [300,300,3] a tenth.
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
    """Return the distance in bytes from the first to the last element of a row of ``view``."""
    return sum(abs(view.strides[d]) * (fusion.dims[d] - 1) for d in fusion.axes)
