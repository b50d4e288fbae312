"""Report of a latency-hiding schedule: a module's collectives before and after, and the cost of its limits."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.schedule.overlap_limits import OverlapLimits


@dataclass(frozen=True, slots=True)
class CollectiveReport:
    """One collective of the module. times: runs of it in one step; seconds, exposed: of one of them, exposed on the
    order before and after. Of these, what a limit alone leaves: limited, that of memory; held, those of what may be in
    flight (but for that of one exchange).
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
    """Report of one step on one device. seconds: predicted, for the order before and after. work: the device's own.

    communication: seconds that each exchange is busy. peak: live bytes before and after (spmd.analysis.live_bytes, or
    what the options measure). unlimited: seconds without the memory limit. limits: what could be in flight. unchanged:
    computations whose order stands, as none was better. unknown_loops: counted as one trip.
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
