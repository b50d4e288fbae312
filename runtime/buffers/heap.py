"""Heap simulation: offsets for intervals of time, so that what lives together lies apart (best fit, largest first).

The order by size is XLA's GlobalDecreasingSizeBestFitHeap: large values choose first, small ones fill the gaps. Exact
packing is NP-hard (dynamic storage allocation); ``lower_bound`` says how far off a packing can be at most.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def pack(intervals: Sequence[Interval]) -> Packing:
    """The smaller of two packings: largest first, and longest-lived first among equals of rank size x life."""
    by_size = sorted(
        range(len(intervals)),
        key=lambda i: (-intervals[i].size, intervals[i].start - intervals[i].end, i),
    )
    by_area = sorted(
        range(len(intervals)),
        key=lambda i: (-intervals[i].size * (intervals[i].end - intervals[i].start + 1), i),
    )
    by_start = sorted(
        range(len(intervals)), key=lambda i: (intervals[i].start, -intervals[i].size, i)
    )
    packings = [_pack_in_order(intervals, order) for order in (by_size, by_area, by_start)]
    return min(packings, key=lambda packing: packing.size)


def _pack_in_order(intervals: Sequence[Interval], order: Sequence[int]) -> Packing:
    """Place one after the other, each into the tightest gap among those placed that it lives together with."""
    count = len(order)
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    lows, highs = np.empty(count, np.int64), np.empty(count, np.int64)
    offsets = [0] * len(intervals)
    top = 0
    for placed, i in enumerate(order):
        interval = intervals[i]
        size = aligned(interval.size)
        together = (starts[:placed] <= interval.end) & (ends[:placed] >= interval.start)
        offset = _best_gap(lows[:placed][together], highs[:placed][together], size)
        offsets[i] = offset
        starts[placed], ends[placed] = interval.start, interval.end
        lows[placed], highs[placed] = offset, offset + size
        top = max(top, offset + size)
    return Packing(tuple(offsets), top)


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
