"""Lengths of overlaps of time intervals, in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]


def common(one: Interval, other: Interval) -> float:
    """Return the length of the intersection of two intervals."""
    return max(min(one[1], other[1]) - max(one[0], other[0]), 0.0)


def covered(one: Interval, others: Iterable[Interval]) -> float:
    """Return the length of the part of ``one`` that the union of ``others`` covers. ``others`` may overlap."""
    total, at = 0.0, one[0]
    for start, end in sorted(others):
        start, end = max(start, at), min(end, one[1])
        if end > start:
            total += end - start
            at = end
    return total


def shared(some: Sequence[Interval], others: Sequence[Interval]) -> float:
    """Return the length of the intersection of two unions. Each sequence is sorted, and its intervals are disjoint."""
    total, one, other = 0.0, 0, 0
    while one < len(some) and other < len(others):
        total += common(some[one], others[other])
        end, other_end = some[one][1], others[other][1]
        one += end <= other_end
        other += other_end < end
    return total


def crowded(one: Interval, others: Iterable[Interval], count: int) -> float:
    """Return the length of the part of ``one`` that at least ``count`` of ``others`` cover."""
    cut = [(max(start, one[0]), min(end, one[1])) for start, end in others]
    turns = sorted(
        (at, by) for start, end in cut if end > start for at, by in ((start, 1), (end, -1))
    )
    total, inside = 0.0, 0
    for (at, by), (until, _) in pairwise(turns):
        inside += by
        total += until - at if inside >= count else 0.0
    return total
