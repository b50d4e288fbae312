"""Reuse distances of the bytes that a kernel touches: the number of bytes touched since their last use.

An LRU cache of n bytes holds all bytes whose reuse distance is at most n, so the distance gives the cache level of an
array on any machine. For example, an array of s bytes that is read right after it was written has distance s. Distances
belong to addresses, not to values: a write over a dead array finds its lines in the cache.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from runtime.buffers.types import ArrayView
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes from ``start`` to before ``end`` of allocation number ``allocation``."""

    allocation: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Found:
    """``size`` bytes with the same reuse ``distance`` in bytes, which is infinite beyond the model's maximum."""

    size: int
    distance: float


def span_of(array: ArrayView) -> Span:
    """Return the span from the first byte of ``array`` to its last, gaps included."""
    view = array.view
    start = array.slice.offset + view.offset
    if not view.num_elements:
        return Span(array.slice.allocation, start, start)
    steps = [(size - 1) * stride for size, stride in zip(view.dims, view.strides, strict=True)]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    return Span(array.slice.allocation, start + low, start + high + view.element_type.byte_size)


@dataclass(frozen=True, slots=True)
class _Touched:
    """The bytes from ``start`` to before ``end`` of an allocation, all touched last at ``time``."""

    start: int
    end: int
    time: int


class ReuseDistance:
    """Reuse-distance model. Distances above ``max_distance`` bytes count as infinite."""

    def __init__(self, max_distance: float) -> None:
        self.max_distance = max_distance
        #: Touched spans of each allocation, by its number: disjoint, in the order of their starts.
        self._touched: dict[int, list[_Touched]] = {}
        self._history = _History()

    def touch(self, spans: Sequence[Span], is_full: Sequence[bool]) -> list[list[Found]]:
        """Touch all ``spans`` at the same time, as one kernel does. Returns the distances that each had before.

        A span that lies within an earlier one of the list has distance 0. If a span is not touched in full
        (``is_full``), its distance stays as it was, because it is not known which part of it is touched.
        """
        found = [self._find(span) for span in spans]
        for n, span in enumerate(spans):
            if any(_shared(span, other) == span.size for other in spans[:n]):
                found[n] = [Found(span.size, 0.0)]
            if is_full[n] and span.size:
                self._push(span)
        return found

    def _find(self, wanted: Span) -> list[Found]:
        """Return the parts of ``wanted`` by distance, the smallest first."""
        touched = self._touched.get(wanted.allocation, [])
        known = [
            Found(min(one.end, wanted.end) - max(one.start, wanted.start), distance)
            for one in touched[slice(*_overlapping(touched, wanted))]
            if (distance := self._history.since(one.time, self.max_distance)) < math.inf
        ]
        missing = wanted.size - sum(one.size for one in known)
        known.sort(key=lambda one: one.distance)
        return [*known, Found(missing, math.inf)] if missing else known

    def _push(self, span: Span) -> None:
        touched = self._touched.setdefault(span.allocation, [])
        first, last = _overlapping(touched, span)
        remaining: list[_Touched] = []
        for one in touched[first:last]:
            parts = (
                _Touched(one.start, min(one.end, span.start), one.time),
                _Touched(max(one.start, span.end), one.end, one.time),
            )
            left = [part for part in parts if part.end > part.start]
            remaining += left
            gone = one.end - one.start - sum(part.end - part.start for part in left)
            self._history.forget(one.time, gone)
        own = _Touched(span.start, span.end, self._history.add(span.size))
        touched[first:last] = sorted([*remaining, own], key=_start)


def _start(one: _Touched) -> int:
    return one.start


def _end(one: _Touched) -> int:
    return one.end


def _overlapping(touched: Sequence[_Touched], span: Span) -> tuple[int, int]:
    """Return the range of indices of the entries that share bytes with ``span``."""
    return bisect_right(touched, span.start, key=_end), bisect_left(touched, span.end, key=_start)


class _History:
    """Numbers of bytes that were last touched at each time, as a tree of partial sums (P. M. Fenwick, 1994)."""

    def __init__(self) -> None:
        self._sums = [0]
        self._bytes = [0]
        self._total = 0

    def add(self, size: int) -> int:
        """Record that ``size`` bytes are touched now, and return the time."""
        time = len(self._sums)
        total, step = size, 1
        while step < time & -time:
            total += self._sums[time - step]
            step *= 2
        self._sums.append(total)
        self._bytes.append(size)
        self._total += size
        return time

    def forget(self, time: int, size: int) -> None:
        """Subtract ``size`` bytes from ``time``, because they have been touched again."""
        self._bytes[time] -= size
        self._total -= size
        while time < len(self._sums):
            self._sums[time] -= size
            time += time & -time

    def since(self, time: int, max_distance: float) -> float:
        """Return the bytes touched at ``time`` or later, or infinity if those after it exceed ``max_distance``."""
        before, at = 0, time
        while at:
            before += self._sums[at]
            at -= at & -at
        later = self._total - before
        return math.inf if later > max_distance else later + self._bytes[time]


def _shared(a: Span, b: Span) -> int:
    """Return the number of bytes that both spans contain."""
    if a.allocation != b.allocation:
        return 0
    return max(0, min(a.end, b.end) - max(a.start, b.start))
