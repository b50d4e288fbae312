"""In which order to lay intervals into an arena: greedy packing is as good as its order, and no one order is the best.

The order by size is XLA's GlobalDecreasingSizeBestFitHeap: large values choose first, small ones fill the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from runtime.buffers.arena import Interval, load

#: Indices of intervals, the one to be placed first before all.
Order: TypeAlias = Callable[[Sequence[Interval]], list[int]]


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


def latest_first(intervals: Sequence[Interval]) -> list[int]:
    """What is left at the end, outputs among it, lies lowest."""
    return sorted(range(len(intervals)), key=lambda i: (-intervals[i].end, -intervals[i].size, i))


def longest_first(intervals: Sequence[Interval]) -> list[int]:
    return sorted(
        range(len(intervals)),
        key=lambda i: (intervals[i].start - intervals[i].end, -intervals[i].size, i),
    )


def busiest_first(key: Callable[[Interval], tuple[int, ...]]) -> Order:
    """By the most bytes that are needed at one time of its life, so that these lie without gaps; then by ``key``."""

    def order(intervals: Sequence[Interval]) -> list[int]:
        bytes_at = load(intervals)
        most = [int(bytes_at[interval.start : interval.end + 1].max()) for interval in intervals]
        return sorted(range(len(intervals)), key=lambda i: (-most[i], key(intervals[i]), i))

    return order


def nearest_to_peak_first(intervals: Sequence[Interval]) -> list[int]:
    """What lives where most bytes are needed, then outwards in time."""
    if not intervals:
        return []
    peak = int(load(intervals).argmax())

    def distance(interval: Interval) -> int:
        return max(interval.start - peak, peak - interval.end, 0)

    return sorted(
        range(len(intervals)), key=lambda i: (distance(intervals[i]), -intervals[i].size, i)
    )


#: By what dumps call them. Measured on assignments of real programs, each is the best for some, the first for most.
ORDERS: dict[str, Order] = {
    "busiest, then largest first": busiest_first(lambda one: (-one.size, one.start - one.end)),
    "largest first": largest_first,
    "largest area first": largest_area_first,
    "earliest first": earliest_first,
    "busiest, then longest first": busiest_first(lambda one: (one.start - one.end, -one.size)),
    "busiest, then earliest first": busiest_first(lambda one: (one.start, -one.size)),
    "nearest to the peak first": nearest_to_peak_first,
    "longest first": longest_first,
    "latest first": latest_first,
}
