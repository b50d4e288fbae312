"""Report of a latency-hiding schedule: a module's collectives before and after, and the cost of its limits."""

from __future__ import annotations

from collectives.schedule.overlap_limits import OverlapLimits
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveReport:
    """One collective of the scheduled module.

    times: executions in one step.
    seconds: of one execution.
    exposed: seconds of one execution that nothing hides.
    limited: seconds of ``exposed`` that are due to the memory limit alone.
    in_flight_limited: seconds of ``exposed`` that are due to the limits of collectives in flight alone, except for the
      limit of one exchange.
    """

    name: str
    times: int
    seconds: float
    exposed: float
    limited: float = 0.0
    in_flight_limited: float = 0.0


@dataclass(frozen=True)
class LatencyReport:
    """Report of one step on one device.

    seconds_before, seconds: predicted for the order before and after.
    work: seconds of the device's own work.
    communication: (exchange, seconds for which it is busy) pairs.
    peak_before, peak: live bytes (``spmd.analysis.live_bytes``) before and after.
    limits: limits of the collectives in flight.
    changed: a computation has another order than before.
    """

    seconds_before: float
    seconds: float
    work: float
    communication: tuple[tuple[str, float], ...]
    collectives: tuple[CollectiveReport, ...]
    peak_before: int
    peak: int
    limits: OverlapLimits
    changed: bool = False

    @property
    def exposed(self) -> float:
        return sum(one.times * one.exposed for one in self.collectives)
