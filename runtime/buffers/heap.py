"""Heap simulation: offsets for intervals of time, so that what lives together lies apart (best fit, largest first).

The order by size is XLA's GlobalDecreasingSizeBestFitHeap: large values choose first, small ones fill the gaps. Exact
packing is NP-hard (dynamic storage allocation); ``lower_bound`` says how far off a packing can be at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.buffers.types import aligned


@dataclass(frozen=True, slots=True)
class Interval:
    """``size`` bytes are needed at all positions ``start..end``, both included."""

    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class Packing:
    """``offsets`` by interval; ``size`` is the end of the highest one."""

    offsets: tuple[int, ...]
    size: int


class Arena:
    """Bytes 0.. (up to ``limit``, if given) over time; intervals are placed one after the other and stay."""

    def __init__(self, capacity: int, limit: int | None = None) -> None:
        self.limit = limit
        self.size = 0
        self._count = 0
        self._starts, self._ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        self._lows, self._highs = np.empty(capacity, np.int64), np.empty(capacity, np.int64)

    def place(self, interval: Interval) -> int | None:
        """The tightest gap among those that live at the same time; None where the limit leaves no room."""
        n = self._count
        size = aligned(interval.size)
        together = (self._starts[:n] <= interval.end) & (self._ends[:n] >= interval.start)
        offset = _best_gap(self._lows[:n][together], self._highs[:n][together], size)
        if self.limit is not None and offset + interval.size > self.limit:
            return None
        self._starts[n], self._ends[n] = interval.start, interval.end
        self._lows[n], self._highs[n] = offset, offset + size
        self._count += 1
        self.size = max(self.size, offset + size)
        return offset


def pack(intervals: Sequence[Interval]) -> Packing:
    """The smallest of three packings: by size, by size x life, by start."""
    packings = [_pack_in_order(intervals, order(intervals)) for order in ORDERS]
    return min(packings, key=lambda packing: packing.size)


def largest_first(intervals: Sequence[Interval]) -> list[int]:
    """Among equals, the one that lives longest."""
    return sorted(
        range(len(intervals)),
        key=lambda i: (-intervals[i].size, intervals[i].start - intervals[i].end, i),
    )


def largest_area_first(intervals: Sequence[Interval]) -> list[int]:
    return sorted(
        range(len(intervals)),
        key=lambda i: (-intervals[i].size * (intervals[i].end - intervals[i].start + 1), i),
    )


def earliest_first(intervals: Sequence[Interval]) -> list[int]:
    return sorted(range(len(intervals)), key=lambda i: (intervals[i].start, -intervals[i].size, i))


ORDERS: Sequence[Callable[[Sequence[Interval]], list[int]]] = (
    largest_first,
    largest_area_first,
    earliest_first,
)


def _pack_in_order(intervals: Sequence[Interval], order: Sequence[int]) -> Packing:
    arena = Arena(len(intervals))
    offsets = [0] * len(intervals)
    for i in order:
        offset = arena.place(intervals[i])
        assert offset is not None
        offsets[i] = offset
    return Packing(tuple(offsets), arena.size)


def _best_gap(lows: np.ndarray, highs: np.ndarray, size: int) -> int:
    """The lowest offset of the smallest gap that holds ``size``; above everything where none does."""
    if not len(lows):
        return 0
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], highs[order]
    covered = np.maximum.accumulate(highs)
    gap_starts = np.concatenate(([0], covered[:-1]))
    gaps = lows - gap_starts
    fits = np.flatnonzero(gaps >= size)
    if not len(fits):
        return int(covered[-1])
    return int(gap_starts[fits[np.argmin(gaps[fits])]])


def lower_bound(intervals: Sequence[Interval]) -> int:
    """The largest sum of (aligned) sizes that are needed at one time: no packing is smaller."""
    changes: dict[int, int] = {}
    for interval in intervals:
        size = aligned(interval.size)
        changes[interval.start] = changes.get(interval.start, 0) + size
        changes[interval.end + 1] = changes.get(interval.end + 1, 0) - size
    live = peak = 0
    for position in sorted(changes):
        live += changes[position]
        peak = max(peak, live)
    return peak
