"""Expectations of the latency-hiding scheduler for a program's collectives: plain data, to compare with a measured
step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spmd.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collectives.schedule.latency_report import CollectiveReport, LatencyReport
    from spmd.machine.description import MachineDescription
    from spmd.machine.exchange import Exchange


@dataclass(frozen=True, slots=True)
class ScheduledCollective:
    """One collective of the schedule. Seconds are those of one execution.

    name: of its start, or of itself if it blocks.
    seconds: alone on its links.
    exposed: seconds of these, and of waiting for its ports, that nothing hides.
    limited: seconds of ``exposed`` that are due to the memory limit alone.
    in_flight_limited: seconds of ``exposed`` that are due to the limits of collectives in flight on all exchanges
      together.
    """

    name: str
    seconds: float
    exposed: float
    limited: float = 0.0
    in_flight_limited: float = 0.0


@dataclass(frozen=True)
class ScheduledOverlap:
    """Expected overlap of a schedule.

    machine: the machine that the schedule was made for, with its ``exchanges``.
    per_exchange: largest number of collectives in flight on one exchange.
    in_flight: largest number in flight on all exchanges together; 0 for no limit.
    seconds: of one step.
    """

    machine: str
    exchanges: tuple[Exchange, ...]
    per_exchange: int
    in_flight: int
    seconds: float
    collectives: tuple[ScheduledCollective, ...]

    def of(self, name: str) -> ScheduledCollective | None:
        """Return the collective of that name, or None."""
        return next((one for one in self.collectives if one.name == name), None)


def scheduled_overlap(
    report: LatencyReport, machine: MachineDescription, blocking: Mapping[str, str]
) -> ScheduledOverlap:
    """Return the expectations of ``report``. blocking: starts that became blocking collectives, to the names of
    these."""
    return ScheduledOverlap(
        machine.name,
        machine.exchanges,
        report.limits.per_exchange,
        report.limits.in_flight,
        report.seconds,
        tuple(_collective(row, blocking.get(row.name)) for row in report.collectives),
    )


def _collective(row: CollectiveReport, blocking: str | None) -> ScheduledCollective:
    name, exposed = (row.name, row.exposed) if blocking is None else (blocking, row.seconds)
    return ScheduledCollective(name, row.seconds, exposed, row.limited, row.in_flight_limited)
