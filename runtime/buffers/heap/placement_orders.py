"""Orders in which intervals are placed. Greedy packing depends on the order, and no single order is always best.

The order by size is that of XLA's GlobalDecreasingSizeBestFitHeap: large values are placed first, and small values fill
the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from runtime.buffers.heap.arena import Interval, load

#: Function from intervals to their indices, in the order of placement.
Order: TypeAlias = Callable[[Sequence[Interval]], list[int]]


def largest_first(intervals: Sequence[Interval]) -> list[int]:
    """Order by size, the largest first; intervals of equal size by length, the longest first."""
    return sorted(
        range(len(intervals)),
        key=lambda i: (-intervals[i].size, intervals[i].start - intervals[i].end, i),
    )


def largest_area_first(intervals: Sequence[Interval]) -> list[int]:
    """Order by size times length, the largest first."""
    return sorted(
        range(len(intervals)),
        key=lambda i: (-intervals[i].size * (intervals[i].end - intervals[i].start + 1), i),
    )


def earliest_first(intervals: Sequence[Interval]) -> list[int]:
    """Order by start; intervals of equal start by size, the largest first."""
    return sorted(range(len(intervals)), key=lambda i: (intervals[i].start, -intervals[i].size, i))


def latest_first(intervals: Sequence[Interval]) -> list[int]:
    """Order by end, the latest first. Values that are live at the end, including outputs, get the lowest offsets."""
    return sorted(range(len(intervals)), key=lambda i: (-intervals[i].end, -intervals[i].size, i))


def longest_first(intervals: Sequence[Interval]) -> list[int]:
    """Order by length, the longest first; intervals of equal length by size, the largest first."""
    return sorted(
        range(len(intervals)),
        key=lambda i: (intervals[i].start - intervals[i].end, -intervals[i].size, i),
    )


def busiest_first(key: Callable[[Interval], tuple[int, ...]]) -> Order:
    """Return the order by the maximum of live bytes during the interval, the largest first, then by ``key``.

    The intervals at the peak are thus placed without gaps.
    """

    def order(intervals: Sequence[Interval]) -> list[int]:
        bytes_at = load(intervals)
        most = [int(bytes_at[interval.start : interval.end + 1].max()) for interval in intervals]
        return sorted(range(len(intervals)), key=lambda i: (-most[i], key(intervals[i]), i))

    return order


def nearest_to_peak_first(intervals: Sequence[Interval]) -> list[int]:
    """Order by distance in time from the peak of live bytes, the nearest first."""
    if not intervals:
        return []
    peak = int(load(intervals).argmax())

    def distance(interval: Interval) -> int:
        return max(interval.start - peak, peak - interval.end, 0)

    return sorted(
        range(len(intervals)), key=lambda i: (distance(intervals[i]), -intervals[i].size, i)
    )


#: Orders by their names in dumps. On assignments of real programs each order is best for some, the first for most.
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
