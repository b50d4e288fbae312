"""Arena: bytes over time, into which intervals of time are laid one after the other, each into a gap that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from runtime.buffers.types import alignment_of
from spmd.literal import NDArray


@dataclass(frozen=True, slots=True)
class Interval:
    """``size`` bytes are needed at all positions ``start..end``, both included."""

    start: int
    end: int
    size: int


class Fit(Enum):
    """Which of the gaps that hold an interval it takes."""

    BEST = "best fit"  # the tightest one
    FIRST = "first fit"  # the lowest one


class Arena:
    """Bytes 0.. (up to ``limit``, if given) over time; intervals are placed one after the other and stay.

    ``size``: the end of the highest one.
    """

    def __init__(self, capacity: int, limit: int | None = None) -> None:
        self.limit = limit
        self.size = 0
        self._count = 0
        self._starts, self._ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        self._lows, self._highs = np.empty(capacity, np.int64), np.empty(capacity, np.int64)

    def place(self, interval: Interval, fit: Fit = Fit.BEST) -> int | None:
        """The offset of a gap among those that live at the same time; None where the limit leaves no room."""
        n, size = self._count, interval.size
        together = (self._starts[:n] <= interval.end) & (self._ends[:n] >= interval.start)
        offset = _gap(
            self._lows[:n][together], self._highs[:n][together], size, alignment_of(size), fit
        )
        if self.limit is not None and offset + size > self.limit:
            return None
        self._starts[n], self._ends[n] = interval.start, interval.end
        self._lows[n], self._highs[n] = offset, offset + size
        self._count += 1
        self.size = max(self.size, offset + size)
        return offset


def _gap(lows: NDArray, highs: NDArray, size: int, alignment: int, fit: Fit) -> int:
    """The first aligned offset in a gap that holds ``size``; above everything where there is none.

    ``lows``, ``highs``: int64[n], where what lives at the same time begins and ends. Of equal gaps the lowest.
    """
    if not len(lows):
        return 0
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], highs[order]
    covered = np.maximum.accumulate(highs)
    below = np.concatenate(([0], covered[:-1]))
    first = -(-below // alignment) * alignment
    fits = np.flatnonzero(lows - first >= size)
    if not len(fits):
        return int(-(-covered[-1] // alignment) * alignment)
    gaps = (lows - below)[fits]
    return int(first[fits[np.argmin(gaps) if fit is Fit.BEST else 0]])


def load(intervals: Sequence[Interval]) -> NDArray:
    """int64[positions]: bytes that are needed at each position, from 0 to the last one's end."""
    changes = np.zeros(max((one.end for one in intervals), default=0) + 2, np.int64)
    for one in intervals:
        changes[one.start] += one.size
        changes[one.end + 1] -= one.size
    return np.cumsum(changes)


def lower_bound(intervals: Sequence[Interval]) -> int:
    """The largest sum of sizes that are needed at one time: no packing is smaller."""
    return int(load(intervals).max())
