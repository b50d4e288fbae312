"""Reuse distances of the bytes that a kernel touches: the bytes touched since they were touched last.

A cache that holds n bytes and keeps what was used last holds all that was touched within the last n bytes. So the
*reuse distance* says at which level an array is found, whatever caches there are: an array of s bytes, read right after
it was written, is s bytes away. Places count, not values: what is written over an array that has died finds its lines
in the cache.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.buffers.types import ArrayView


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from ``start`` to ``end`` of allocation ``allocation``."""

    allocation: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Found:
    """``size`` bytes were touched ``distance`` bytes ago; infinite: not as far as is remembered."""

    size: int
    distance: float


def span_of(place: ArrayView) -> Span:
    """From the array's first byte to behind its last, gaps included."""
    view = place.view
    start = place.slice.offset + view.offset
    if not view.num_elements:
        return Span(place.slice.allocation, start, start)
    steps = [(size - 1) * stride for size, stride in zip(view.dims, view.strides, strict=True)]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    return Span(place.slice.allocation, start + low, start + high + view.element_type.byte_size)


@dataclass(frozen=True, slots=True)
class _Touched:
    """Bytes from ``start`` to ``end``, all touched last at ``time``."""

    start: int
    end: int
    time: int


class ReuseDistance:
    """``reach``: bytes that are remembered; beyond it all is equally far."""

    def __init__(self, reach: float) -> None:
        self.reach = reach
        #: By allocation: without overlaps, in the order of their starts.
        self._touched: dict[int, list[_Touched]] = {}
        self._history = _History()

    def touch(self, spans: Sequence[Span], whole: Sequence[bool]) -> list[list[Found]]:
        """One kernel goes over all of these at the same time: how far each was, before it becomes the nearest.

        Where two share bytes, the later one finds these next to it. What is not touched as a ``whole`` stays as far
        as it was: nobody knows which part of it has come near.
        """
        found = [self._find(span) for span in spans]
        for n, span in enumerate(spans):
            if any(_shared(span, other) == span.size for other in spans[:n]):
                found[n] = [Found(span.size, 0.0)]
            if whole[n] and span.size:
                self._push(span)
        return found

    def _find(self, wanted: Span) -> list[Found]:
        """The nearest first."""
        touched = self._touched.get(wanted.allocation, [])
        known = [
            Found(min(one.end, wanted.end) - max(one.start, wanted.start), distance)
            for one in touched[slice(*_overlapping(touched, wanted))]
            if (distance := self._history.since(one.time, self.reach)) < math.inf
        ]
        missing = wanted.size - sum(one.size for one in known)
        known.sort(key=lambda one: one.distance)
        return [*known, Found(missing, math.inf)] if missing else known

    def _push(self, span: Span) -> None:
        touched = self._touched.setdefault(span.allocation, [])
        first, last = _overlapping(touched, span)
        kept: list[_Touched] = []
        for one in touched[first:last]:
            parts = (
                _Touched(one.start, min(one.end, span.start), one.time),
                _Touched(max(one.start, span.end), one.end, one.time),
            )
            left = [part for part in parts if part.end > part.start]
            kept += left
            gone = one.end - one.start - sum(part.end - part.start for part in left)
            self._history.forget(one.time, gone)
        own = _Touched(span.start, span.end, self._history.add(span.size))
        touched[first:last] = sorted([*kept, own], key=_start)


def _start(one: _Touched) -> int:
    return one.start


def _end(one: _Touched) -> int:
    return one.end


def _overlapping(touched: Sequence[_Touched], span: Span) -> tuple[int, int]:
    """First and behind the last of those that share bytes with ``span``."""
    return bisect_right(touched, span.start, key=_end), bisect_left(touched, span.end, key=_start)


class _History:
    """Bytes that were touched last at each time, as a tree of sums (P. M. Fenwick, 1994)."""

    def __init__(self) -> None:
        self._sums = [0]
        self._bytes = [0]
        self._total = 0

    def add(self, size: int) -> int:
        """``size`` bytes are touched: at what time."""
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
        """So many of the bytes of ``time`` have been touched again."""
        self._bytes[time] -= size
        self._total -= size
        while time < len(self._sums):
            self._sums[time] -= size
            time += time & -time

    def since(self, time: int, reach: float) -> float:
        """Bytes of that time and later; infinite where those of later times alone are more than ``reach``."""
        before, at = 0, time
        while at:
            before += self._sums[at]
            at -= at & -at
        later = self._total - before
        return math.inf if later > reach else later + self._bytes[time]


def _shared(a: Span, b: Span) -> int:
    """Bytes."""
    if a.allocation != b.allocation:
        return 0
    return max(0, min(a.end, b.end) - max(a.start, b.start))
