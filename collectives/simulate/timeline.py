"""Timeline: the activities of the simulated devices over time, without the loop trips that were skipped."""

from __future__ import annotations

import bisect
from dataclasses import field
from enum import Enum

from spmd.lazy_dataclass import dataclass


class Row(Enum):
    """Row of the timeline that a slice occupies."""

    COMPUTE = "compute"
    WAIT = "wait"
    """The device waits for a collective."""
    COLLECTIVE = "collective"
    """From when all members are ready to the end of the transfer."""


@dataclass(frozen=True, slots=True)
class Slice:
    """An interval of a timeline.

    device: number of the device class.
    links: the exchanges that a collective keeps busy; empty for other slices.
    """

    device: int
    row: Row
    name: str
    start: float
    end: float
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skip:
    """Skipped trips of a loop: ``trips`` trips that take ``seconds`` were not simulated at simulated time ``at``."""

    at: float
    loop: str
    trips: int
    seconds: float


@dataclass
class Timeline:
    """Slices in the order in which they end, and skips in order of time. Times of slices do not include skipped trips.

    wanted: record slices.
    """

    wanted: bool = True
    slices: list[Slice] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)

    def add(self, one: Slice) -> None:
        """Record a slice, unless it is empty or slices are not recorded."""
        if self.wanted and one.end > one.start:
            self.slices.append(one)

    @property
    def skipped(self) -> float:
        """Return the total seconds of skipped trips."""
        return sum(skip.seconds for skip in self.skips)

    def of(self, device: int) -> list[Slice]:
        """Return the slices of one device class, sorted by time, at the times of the entire step.

        Skipped trips of a loop are shown as one slice in the row of computation.
        """
        at = [skip.at for skip in self.skips]
        before = [0.0]
        for skip in self.skips:
            before.append(before[-1] + skip.seconds)
        found = []
        for one in self.slices:
            if one.device == device:
                later = before[bisect.bisect_right(at, one.start)]
                found.append(
                    Slice(device, one.row, one.name, one.start + later, one.end + later, one.links)
                )
        for number, skip in enumerate(self.skips):
            start = skip.at + before[number]
            name = f"{skip.loop}: {skip.trips} more trips"
            found.append(Slice(device, Row.COMPUTE, name, start, start + skip.seconds))
        return sorted(found, key=lambda one: (one.start, one.end))
