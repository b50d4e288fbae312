"""What a latency-hiding schedule does to a module's collectives, before and after, and what its limits cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveReport:
    """One collective of the module. times: runs of it in one step; seconds, exposed: of one of them, exposed on the
    order before and after. limited: seconds of a run that only the memory limit leaves exposed.
    """

    name: str
    kind: str
    computation: str
    times: int
    seconds: float
    exposed_before: float
    exposed: float
    limited: float = 0.0

    @property
    def hidden(self) -> float:
        return max(self.seconds - self.exposed, 0.0)


@dataclass(frozen=True)
class LatencyReport:
    """Of one step on one device. seconds: predicted, on the order before and after. work: the device's own.

    communication: seconds that each exchange is busy. peak: live bytes before and after (spmd.analysis.live_bytes, or
    what the options measure). unlimited: seconds without the memory limit. kept: computations whose order is no better
    changed. unknown_loops: counted as one trip.
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
    kept: tuple[str, ...] = ()
    unknown_loops: tuple[str, ...] = ()
    changed: bool = False

    @property
    def hideable(self) -> float:
        """The least of the device's work and each exchange's seconds, exchange by exchange the larger."""
        return max((min(self.work, seconds) for _, seconds in self.communication), default=0.0)

    @property
    def exposed(self) -> float:
        return sum(one.times * one.exposed for one in self.collectives)

    @property
    def lost_to_memory(self) -> tuple[CollectiveReport, ...]:
        """Collectives that the memory limit keeps exposed, those that lose most first."""
        lost = [one for one in self.collectives if one.limited > 0]
        return tuple(sorted(lost, key=lambda one: (-one.times * one.limited, one.name)))

    def lines(self) -> Iterator[str]:
        """For people."""
        yield (
            f"step {_ms(self.seconds_before)} -> {_ms(self.seconds)}, work {_ms(self.work)}, "
            f"exposed {_ms(self.exposed)}"
        )
        for exchange, seconds in self.communication:
            yield f"{exchange}: busy {_ms(seconds)}"
        limit = "none" if self.memory_limit is None else f"{self.memory_limit:,}"
        yield f"live bytes {self.peak_before:,} -> {self.peak:,}, limit {limit}"
        if self.unlimited < self.seconds:
            yield f"without the memory limit: {_ms(self.unlimited)}"
        for one in self.lost_to_memory:
            yield f"  {one.name}: {_ms(one.times * one.limited)} more would be hidden"
        for name in self.unknown_loops:
            yield f"trips of {name} are not known: counted as one"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f} ms"
