"""Arena: bytes over time, in which live intervals are placed one after the other, each in a gap that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from runtime.buffers.heap.interval_placement import (
    ITEM_COLUMNS,
    NO_LIMIT,
    PLACED_COLUMNS,
    placement,
)
from runtime.buffers.types import alignment_of
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray


@dataclass(frozen=True, slots=True)
class Interval:
    """Live interval: ``size`` bytes are needed at all positions ``start..end``, both included."""

    start: int
    end: int
    size: int


class Fit(Enum):
    """Choice among the gaps that hold an interval."""

    BEST = "best fit"  # the smallest gap
    FIRST = "first fit"  # the lowest gap


class Arena:
    """Bytes 0.. (up to ``limit``, if given) over time; intervals are placed one after the other and stay.

    ``capacity``: the number of intervals for which it has room.
    """

    def __init__(self, capacity: int, limit: int | None = None) -> None:
        self.limit = limit
        self._placed = np.empty((capacity, PLACED_COLUMNS), np.int64)
        self._count = 0

    @property
    def size(self) -> int:
        """The end of the highest interval."""
        return int(self._placed[: self._count, 1].max(initial=0))

    def allocate(self, interval: Interval, fit: Fit = Fit.BEST) -> int | None:
        """Return the offset of a gap among intervals that live at the same time; None if the limit leaves no room."""
        offsets = self.allocate_all(items_of([interval]), fit)
        return None if offsets is None else int(offsets[0])

    def allocate_all(self, items: NDArray, fit: Fit = Fit.BEST) -> NDArray | None:
        """Place ``items_of`` n intervals in turn. Returns offsets, int64[n], or None if one has no room."""
        if self._count + len(items) > len(self._placed):
            raise ValueError(f"an arena for {len(self._placed)} intervals is given more")
        offsets = _allocate(self._placed, self._count, items, fit, self.limit)
        self._count += len(offsets)
        return offsets if len(offsets) == len(items) else None


def items_of(intervals: Sequence[Interval]) -> NDArray:
    """Return the intervals as int64[n, 4] for the native placement."""
    rows = [(one.start, one.end, one.size, alignment_of(one.size)) for one in intervals]
    return np.array(rows, np.int64).reshape(len(rows), ITEM_COLUMNS)


def _allocate(placed: NDArray, count: int, items: NDArray, fit: Fit, limit: int | None) -> NDArray:
    """Return the offsets of the first items, as many as fit; among equal gaps each takes the lowest.

    placed: rows of the ``count`` placed intervals, lowest first; the items' rows are inserted.
    """
    offsets = np.empty(len(items), np.int64)
    done = placement()(
        placed.ctypes.data,
        count,
        items.ctypes.data,
        len(items),
        fit is Fit.FIRST,
        NO_LIMIT if limit is None else limit,
        offsets.ctypes.data,
    )
    return offsets[:done]


def load(intervals: Sequence[Interval]) -> NDArray:
    """Return int64[positions]: bytes that are needed at each position, from 0 to the last interval's end."""
    changes = np.zeros(max((one.end for one in intervals), default=0) + 2, np.int64)
    for one in intervals:
        changes[one.start] += one.size
        changes[one.end + 1] -= one.size
    return np.cumsum(changes)


def lower_bound(intervals: Sequence[Interval]) -> int:
    """Return the largest sum of sizes that are needed at one time: no packing is smaller."""
    return int(load(intervals).max())
