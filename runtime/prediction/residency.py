"""How far away the bytes that a kernel touches lie: by what has been touched since they were touched last.

A cache that holds n bytes and keeps what was used last holds all that was touched within the last n bytes. So the
*reuse distance* says at which level an array is found, whatever caches there are: an array of s bytes, read right after
it was written, is s bytes away. Places count, not values: what is written over an array that has died finds its lines
in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

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


@dataclass
class Residency:
    """``reach``: bytes that are remembered; beyond it all is equally far."""

    reach: float
    #: Without overlaps, what was touched last at the end.
    _spans: list[Span] = field(default_factory=list)

    def touch(self, spans: Sequence[Span], whole: Sequence[bool]) -> list[list[Found]]:
        """One kernel goes over all of these at the same time: how far each was, before it becomes the nearest.

        Where two share bytes, the later one finds these next to it. What is not touched as a ``whole`` stays as far
        as it was: nobody knows which part of it has come near.
        """
        found = [self._find(span) for span in spans]
        for n, span in enumerate(spans):
            if any(_shared(span, other) == span.size for other in spans[:n]):
                found[n] = [Found(span.size, 0.0)]
            if whole[n]:
                self._push(span)
        self._forget()
        return found

    def _find(self, wanted: Span) -> list[Found]:
        found, passed, missing = [], 0.0, wanted.size
        for span in reversed(self._spans):
            if missing <= 0:
                break
            passed += span.size
            shared = _shared(span, wanted)
            if shared:
                found.append(Found(shared, passed))
                missing -= shared
        return [*found, Found(missing, math.inf)] if missing > 0 else found

    def _push(self, span: Span) -> None:
        kept: list[Span] = []
        for other in self._spans:
            if _shared(other, span):
                parts = (
                    Span(other.allocation, other.start, min(other.end, span.start)),
                    Span(other.allocation, max(other.start, span.end), other.end),
                )
                kept += [part for part in parts if part.size > 0]
            else:
                kept.append(other)
        self._spans = [*kept, span] if span.size else kept

    def _forget(self) -> None:
        total = 0.0
        for n in reversed(range(len(self._spans))):
            total += self._spans[n].size
            if total > self.reach:
                del self._spans[:n]
                return


def _shared(a: Span, b: Span) -> int:
    """Bytes."""
    if a.allocation != b.allocation:
        return 0
    return max(0, min(a.end, b.end) - max(a.start, b.start))
