"""Arena: bytes over time, into which intervals of time are laid one after the other, each into a gap that holds it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

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
        #: Those that are placed, the lowest first: low, high, start, end. Of a few, looked through as they stand.
        self._few: list[_Placed] | None = [] if capacity <= _FEW else None
        self._count = 0
        self._many = np.empty((4, 0 if self._few is not None else capacity), np.int64)

    def place(self, interval: Interval, fit: Fit = Fit.BEST) -> int | None:
        """The offset of a gap among those that live at the same time; None where the limit leaves no room."""
        size = interval.size
        offset = _gap(self._together(interval), size, alignment_of(size), fit)
        if self.limit is not None and offset + size > self.limit:
            return None
        placed = (offset, offset + size, interval.start, interval.end)
        if self._few is None:
            self._many[:, self._count] = placed
            self._count += 1
        else:
            insort(self._few, placed)
        self.size = max(self.size, offset + size)
        return offset

    def _together(self, interval: Interval) -> Iterable[tuple[int, int]]:
        """Lows and highs of what lives at the same time, the lowest first."""
        begin, end = interval.start, interval.end
        if self._few is not None:
            return [(low, high) for low, high, b, e in self._few if b <= end and e >= begin]
        lows, highs, starts, ends = self._many[:, : self._count]
        together = (starts <= end) & (ends >= begin)
        return sorted(zip(lows[together].tolist(), highs[together].tolist(), strict=True))


_Placed: TypeAlias = tuple[int, int, int, int]

_FEW = 500
"""Up to so many intervals NumPy takes longer to begin than Python to look at all."""


def _gap(together: Iterable[tuple[int, int]], size: int, alignment: int, fit: Fit) -> int:
    """The first aligned offset in a gap that holds ``size``; above everything where there is none.

    ``together``: where what lives at the same time begins and ends, the lowest first. Of equal gaps the lowest.
    """
    below = 0
    best: int | None = None
    tightest = 0
    for low, high in together:
        if low >= below + size:
            first = -(-below // alignment) * alignment
            if low - first >= size and (best is None or low - below < tightest):
                best, tightest = first, low - below
                if fit is Fit.FIRST:
                    return best
        if high > below:
            below = high
    return -(-below // alignment) * alignment if best is None else best


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
