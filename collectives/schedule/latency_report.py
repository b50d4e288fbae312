"""Report of a latency-hiding schedule: a module's collectives before and after, and the cost of its limits."""

from __future__ import annotations

from collectives.schedule.overlap_limits import OverlapLimits
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveReport:
    """One collective of the module, before and after scheduling.

    times: executions in one step.
    seconds: of one execution.
    exposed_before, exposed: seconds of one execution that nothing hides, in the order before and after.
    limited: seconds of ``exposed`` that are due to the memory limit alone.
    in_flight_limited: seconds of ``exposed`` that are due to the limits of collectives in flight alone, except for the
      limit of one exchange.
    """

    name: str
    kind: str
    computation: str
    times: int
    seconds: float
    exposed_before: float
    exposed: float
    limited: float = 0.0
    in_flight_limited: float = 0.0


@dataclass(frozen=True)
class LatencyReport:
    """Report of one step on one device.

    seconds_before, seconds: predicted for the order before and after.
    unlimited: seconds without the memory limit.
    work: seconds of the device's own work.
    communication: (exchange, seconds for which it is busy) pairs.
    peak_before, peak: live bytes (``spmd.analysis.live_bytes``) before and after.
    limits: limits of the collectives in flight.
    unchanged: computations that keep their order, as none was better.
    unknown_loops: loops that are counted as one trip.
    """

    seconds_before: float
    seconds: float
    unlimited: float
    work: float
    communication: tuple[tuple[str, float], ...]
    collectives: tuple[CollectiveReport, ...]
    peak_before: int
    peak: int
    memory_limit: int | None
    limits: OverlapLimits
    unchanged: tuple[str, ...] = ()
    unknown_loops: tuple[str, ...] = ()
    changed: bool = False

    @property
    def exposed(self) -> float:
        return sum(one.times * one.exposed for one in self.collectives)

    @property
    def lost_to_memory(self) -> tuple[CollectiveReport, ...]:
        """Collectives that the memory limit keeps exposed, those that lose most first."""
        lost = [one for one in self.collectives if one.limited > 0]
        return tuple(sorted(lost, key=lambda one: (-one.times * one.limited, one.name)))
