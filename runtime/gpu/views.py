"""Arrays and byte ranges in a device's memory, given by addresses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Bytes from address ``start`` up to, but without, address ``end`` of a device's memory."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class DeviceView:
    """Array on a device. ``view.offset`` is in bytes, relative to ``address``."""

    address: int
    view: StridedView

    @property
    def first(self) -> int:
        """Address of element (0, 0, ...)."""
        return self.address + self.view.offset

    @property
    def span(self) -> Span:
        """Smallest byte range that contains all elements. It may contain bytes that belong to no element."""
        low = high = self.first
        if self.view.num_elements == 0:
            return Span(low, low)
        for size, stride in zip(self.view.dims, self.view.strides, strict=True):
            low += min(0, (size - 1) * stride)
            high += max(0, (size - 1) * stride)
        return Span(low, high + self.view.element_type.byte_size)

    @property
    def fills_span(self) -> bool:
        """True if every byte of the span belongs to exactly one element."""
        return self.span.size == self.view.byte_size and not _repeats(self.view)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the union of ``spans`` as ascending spans that neither overlap nor touch, without empty ones."""
    found: list[Span] = []
    for span in sorted(span for span in spans if span.size):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def holder(spans: Sequence[Span], inner: Span) -> int:
    """Return the index of the first of ``spans`` that contains ``inner``. Raises StopIteration if none does."""
    return next(i for i, s in enumerate(spans) if s.start <= inner.start and inner.end <= s.end)


def _repeats(view: StridedView) -> bool:
    return any(
        stride == 0 and size > 1 for size, stride in zip(view.dims, view.strides, strict=True)
    )
