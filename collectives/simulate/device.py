"""SimulatedDevice: one class of devices, with its position in the program and its totals so far."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from collectives.simulate.activities import Activities, Activity, Loop, Series, Work
from collectives.simulate.compute import Compute
from collectives.simulate.ports import Meter, Port, Transfer
from spmd.lazy_dataclass import dataclass


class Total(Enum):
    """Total over a step; in seconds unless stated otherwise."""

    COMPUTE = "compute"
    """Time of kernels at full speed."""
    SLOWED = "slowed"
    """Additional time of kernels because collectives occupied processors."""
    EXPOSED = "exposed"
    """Time that the device waited for a collective."""
    WHILE_EXPOSED = "busy while exposed"
    """Seconds for which a resource was busy while the device waited, by resource."""
    EXECUTIONS = "executions"
    """Number of executions of a collective (a count)."""
    MOVING = "moving"
    """Time from when all members were ready to the end."""
    LATE = "late"
    """Time that it waited for a member that was not ready, by class."""
    CONTENDED = "contended"
    """Time that it waited longer because other transfers shared a link, by link and collective."""


#: Name of the resource that is busy while any transfer of the device is in progress.
ANY_LINK = "all links"

#: Key of a total: (Total, number of the collective or name of the resource, ...).
Key: TypeAlias = tuple[Hashable, ...]


@dataclass(eq=False, slots=True)
class Execution:
    """One execution of a collective by its members.

    site, turn: number of the collective, and how often it had been executed before.
    numbers: the device classes that take part in the transfer.
    ready: time at which each class became ready.
    last: the class that became ready last.
    over: when the transfer ended; None before.
    waiting: devices that wait for the end.
    """

    site: int
    turn: int
    numbers: tuple[int, ...]
    ready: dict[int, float] = field(default_factory=dict)
    last: int = 0
    over: float | None = None
    transfer: Transfer | None = None
    waiting: list[SimulatedDevice] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Frame:
    """Position of a device in one sequence of activities.

    ``index`` is the next activity. If the sequence is the body of ``loop``, ``trip`` counts the loop's trips from 0.
    """

    activities: Activities
    loop: Loop | None = None
    index: int = 0
    trip: int = 0


@dataclass(eq=False, slots=True)
class SimulatedDevice:
    """One class of devices in a simulation.

    number, pace: number of the class, and index of its estimator.
    frames: its position in the program, outermost frame first.
    series: by instruction, the seconds of each execution, where these are known one by one.
    executions: number of executions so far of each kernel.
    end: when it finished; None before.
    turns: number of executions started so far of each collective.
    begun: last started execution of each collective.
    stopped: since when it has been waiting, and what ``meters`` returned then; None while it does not wait.
    skipped_busy: seconds to add to the meters for trips of loops that were skipped.
    """

    number: int
    pace: int
    frames: list[Frame]
    series: Series = field(default_factory=dict)
    executions: dict[str, int] = field(default_factory=dict)
    compute: Compute = field(default_factory=Compute)
    ports: dict[str, Port] = field(default_factory=dict)
    moving: Meter = field(default_factory=Meter)
    in_flight: int = 0
    end: float | None = None
    turns: dict[int, int] = field(default_factory=dict)
    begun: dict[int, Execution | None] = field(default_factory=dict)
    stopped: tuple[float, dict[str, float]] | None = None
    totals: dict[Key, float] = field(default_factory=dict)
    skipped_busy: dict[str, float] = field(default_factory=dict)

    def activity(self) -> Activity | None:
        """Return the next activity; None at the end of the innermost sequence."""
        frame = self.frames[-1]
        return frame.activities[frame.index] if frame.index < len(frame.activities) else None

    def pass_activity(self) -> None:
        """Go to the next activity of the innermost sequence."""
        self.frames[-1].index += 1

    def seconds_of(self, work: Work) -> float:
        """Return the seconds of the next execution of ``work``, and count it."""
        number = self.executions.get(work.name, 0)
        self.executions[work.name] = number + 1
        return self.execution_of(work.name, number, work.seconds[self.pace])

    def execution_of(self, name: str, number: int, otherwise: float) -> float:
        """Return the known seconds of execution ``number`` of an instruction, or ``otherwise`` if they are unknown."""
        known = self.series.get(name, ())
        return known[number] if number < len(known) else otherwise

    def add(self, seconds: float, *key: Hashable) -> None:
        """Add ``seconds`` to the total ``key``."""
        self.totals[key] = self.totals.get(key, 0.0) + seconds

    def port(self, exchange: str) -> Port:
        """Return the device's port of ``exchange``, which is created on first use."""
        return self.ports.setdefault(exchange, Port(exchange))

    def lacks(self, busy: Mapping[str, float]) -> float:
        """Return the fraction of the device's processors that collectives occupy now, at most 1.

        ``busy`` holds, by exchange, the fraction that a fully used port occupies.
        """
        taken = sum(busy.get(name, 0.0) * port.meter.load for name, port in self.ports.items())
        return min(taken, 1.0)

    def meters(self, now: float) -> dict[str, float]:
        """Return the seconds for which each exchange, and any exchange (``ANY_LINK``), was busy in the simulated part
        of the step.
        """
        shown = {name: port.meter.until(now) for name, port in self.ports.items()}
        return {ANY_LINK: self.moving.until(now), **shown}

    def busy(self, now: float) -> dict[str, float]:
        """Return the seconds for which each exchange was busy in the step so far, skipped trips included."""
        return {
            name: shown + self.skipped_busy.get(name, 0.0)
            for name, shown in self.meters(now).items()
        }
