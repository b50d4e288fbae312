"""Heap simulation: offsets for intervals of time, so that what lives together lies apart (best fit, largest first).

The order by size is XLA's GlobalDecreasingSizeBestFitHeap: large values choose first, small ones fill the gaps. Exact
packing is NP-hard (dynamic storage allocation); ``lower_bound`` says how far off a packing can be at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from runtime.buffers.types import aligned
from spmd.literal import NDArray


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


#: In which order to place intervals, as their indices.
Order: TypeAlias = Callable[[Sequence[Interval]], list[int]]


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
    """The smallest of the packings in ``ORDERS``, or the first that is as small as can be."""
    bound = lower_bound(intervals)
    best: Packing | None = None
    for order in ORDERS:
        packing = _pack_in_order(intervals, order(intervals))
        if best is None or packing.size < best.size:
            best = packing
        if best.size <= bound:
            break
    assert best is not None
    return best


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


def busiest_first(key: Callable[[Interval], tuple[int, ...]]) -> Order:
    """By the most bytes that are needed at one time of its life, so that these lie without gaps; then by ``key``."""

    def order(intervals: Sequence[Interval]) -> list[int]:
        load = _load(intervals)
        most = [int(load[interval.start : interval.end + 1].max()) for interval in intervals]
        return sorted(range(len(intervals)), key=lambda i: (-most[i], key(intervals[i]), i))

    return order


def nearest_to_peak_first(intervals: Sequence[Interval]) -> list[int]:
    """What lives where most bytes are needed, then outwards in time."""
    if not intervals:
        return []
    peak = int(_load(intervals).argmax())

    def distance(interval: Interval) -> int:
        return max(interval.start - peak, peak - interval.end, 0)

    return sorted(
        range(len(intervals)), key=lambda i: (distance(intervals[i]), -intervals[i].size, i)
    )


#: No one of them is the best; measured on assignments of real programs, each is for some.
ORDERS: Sequence[Order] = (
    largest_first,
    largest_area_first,
    earliest_first,
    busiest_first(lambda one: (-one.size, one.start - one.end)),
    busiest_first(lambda one: (one.start - one.end, -one.size)),
    busiest_first(lambda one: (one.start, -one.size)),
    nearest_to_peak_first,
)


def _load(intervals: Sequence[Interval]) -> NDArray:
    """Bytes (aligned) that are needed at each position, from 0 to the last one's end."""
    changes = np.zeros(max((one.end for one in intervals), default=0) + 2, np.int64)
    for one in intervals:
        changes[one.start] += aligned(one.size)
        changes[one.end + 1] -= aligned(one.size)
    return np.cumsum(changes)


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
    return int(_load(intervals).max())
