"""Arena: a heap over time, in which live intervals are placed one after another, each in a gap that is large enough."""

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
    """Live interval: ``size`` bytes that are needed at all positions from ``start`` to ``end``, both included."""

    start: int
    end: int
    size: int


class Fit(Enum):
    """Choice among the gaps that are large enough for an interval."""

    BEST = "best fit"  # the smallest gap
    FIRST = "first fit"  # the lowest gap


class Arena:
    """Heap over time, to which intervals are added one after another. They are not removed or moved.

    capacity: largest number of intervals. limit: size of the heap in bytes; None if it is unlimited.
    """

    def __init__(self, capacity: int, limit: int | None = None) -> None:
        self.limit = limit
        self._placed = np.empty((capacity, PLACED_COLUMNS), np.int64)
        self._count = 0

    @property
    def size(self) -> int:
        """Return the end in bytes of the highest interval."""
        return int(self._placed[: self._count, 1].max(initial=0))

    def allocate(self, interval: Interval) -> int | None:
        """Place ``interval`` in the smallest gap among the intervals that are live at the same time.

        Returns its offset in bytes, or None if no gap below the limit is large enough.
        """
        offsets = self.allocate_all(items_of([interval]), Fit.BEST)
        return None if offsets is None else int(offsets[0])

    def allocate_all(self, items: NDArray, fit: Fit) -> NDArray | None:
        """Place n intervals, given by ``items_of``, in turn. Among equal gaps each takes the lowest.

        Returns their offsets, int64[n], or None if one does not fit below the limit; the intervals before it then stay
        placed. Raises ValueError if there are more intervals than the capacity.
        """
        if self._count + len(items) > len(self._placed):
            raise ValueError(f"an arena for {len(self._placed)} intervals is given more")
        offsets = np.empty(len(items), np.int64)
        done = placement()(
            self._placed.ctypes.data,
            self._count,
            items.ctypes.data,
            len(items),
            fit is Fit.FIRST,
            NO_LIMIT if self.limit is None else self.limit,
            offsets.ctypes.data,
        )
        self._count += done
        return offsets if done == len(items) else None


def items_of(intervals: Sequence[Interval]) -> NDArray:
    """Return the intervals as int64[n, 4] (start, end, size, alignment), for the native placement."""
    rows = [(one.start, one.end, one.size, alignment_of(one.size)) for one in intervals]
    return np.array(rows, np.int64).reshape(len(rows), ITEM_COLUMNS)


def load(intervals: Sequence[Interval]) -> NDArray:
    """Return the bytes that are needed at each position, int64[n]; n exceeds the end of the last interval."""
    changes = np.zeros(max((one.end for one in intervals), default=0) + 2, np.int64)
    for one in intervals:
        changes[one.start] += one.size
        changes[one.end + 1] -= one.size
    return np.cumsum(changes)


def lower_bound(intervals: Sequence[Interval]) -> int:
    """Return the largest number of bytes that are needed at one position. No packing is smaller."""
    return int(load(intervals).max())
