"""Expectations of the latency-hiding scheduler for a program's collectives: plain data, to compare with a measured
step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spmd.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collectives.schedule.latency_report import LatencyReport
    from spmd.machine.description import MachineDescription


@dataclass(frozen=True, slots=True)
class ScheduledCollective:
    """One collective of the schedule. Seconds are those of one execution.

    name: of its start, or of itself if it blocks.
    limited: seconds that nothing hides because of the memory limit alone.
    in_flight_limited: seconds that nothing hides because of the limits of collectives in flight on all exchanges
      together.
    """

    name: str
    limited: float = 0.0
    in_flight_limited: float = 0.0


@dataclass(frozen=True)
class ScheduledOverlap:
    """Expected overlap of a schedule.

    machine: the machine that the schedule was made for.
    per_exchange: largest number of collectives in flight on one exchange.
    """

    machine: str
    per_exchange: int
    collectives: tuple[ScheduledCollective, ...]

    def of(self, name: str) -> ScheduledCollective | None:
        """Return the collective of that name, or None."""
        return next((one for one in self.collectives if one.name == name), None)


def scheduled_overlap(
    report: LatencyReport, machine: MachineDescription, blocking: Mapping[str, str]
) -> ScheduledOverlap:
    """Return the expectations of ``report``. blocking: starts that became blocking collectives, to the names of
    these."""
    collectives = tuple(
        ScheduledCollective(blocking.get(row.name, row.name), row.limited, row.in_flight_limited)
        for row in report.collectives
    )
    return ScheduledOverlap(machine.name, report.limits.per_exchange, collectives)
