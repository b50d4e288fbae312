"""SpanUse: what an algorithm sends over one exchange."""

from __future__ import annotations

import math

from collectives.cost.placement import Pattern, Span
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SpanUse:
    """Use of a span by one algorithm: bytes that a device sends over it, sequential steps, and the number of devices of
    a part that do the same at the same time.
    """

    span: Span
    sent: float
    steps: float
    sharers: int

    @property
    def port_seconds(self) -> float:
        """Return the seconds for which the busiest port of the span is busy."""
        way = self.span.exchange
        ports = min(way.ports or self.sharers, self.sharers)
        return self.sent / way.bandwidth * self.sharers / ports


def circles_outside(pattern: Pattern) -> list[int]:
    """Return, for each exchange of ``pattern``, the number of its circles that contain members of the group."""
    counts = [
        math.prod(span.fan for span in pattern.spans[i + 1 :]) for i in range(len(pattern.spans))
    ]
    return [min(count, pattern.size) for count in counts]
