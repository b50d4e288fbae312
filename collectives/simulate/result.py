"""Result of a simulation: of the step, of each collective, of each resource."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.simulate.bound import Bound
from collectives.simulate.least_step import LeastStep
from collectives.simulate.reasons import Cause
from collectives.simulate.timeline import Slice


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """All executions of one collective in a step; seconds of all of them together.

    bytes: of its result. group_size: members that meet, 2 in a permute. seconds: from when all members were ready to
    the end. exposed: for how long the device stood still for it. causes: of that, the largest first. why: the largest
    in words, "" where nothing is exposed.

    exchanges: those that it uses. independent: seconds of work that can overlap one execution. producer, user: names
    of the last producer of its operands and the first user of its result; "" if its computation has none.
    """

    name: str
    kind: str
    bytes: int
    group_size: int
    algorithm: str
    executions: int
    seconds: float
    exposed: float
    causes: tuple[tuple[Cause, float], ...]
    why: str
    exchanges: tuple[str, ...]
    independent: float
    producer: str
    user: str


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """An exchange, or all of them together. busy: seconds of its time that transfers take. hidden: of these, while the
    device computes. hideable: what any schedule could hide, since no more can be busy at a time than the shorter one.
    """

    name: str
    busy: float
    hideable: float
    hidden: float

    @property
    def share(self) -> float:
        """The hidden fraction of what could be hidden."""
        return min(self.hidden / self.hideable, 1.0) if self.hideable > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """One step. Seconds, and figures of one device: one of those that end last.

    seconds: compute + slowed + exposed, and its delay at the begin. compute: kernels at full speed. slowed: additional
    time of kernels while collectives occupy processors. exposed: the device waits for a collective. communication:
    some collective is in flight.
    bound: of any order of the same instructions. least: of any order of the program's pieces, and the time of the
    program without overlap; None if that is unknown. peak_bytes: parameters, constants and results included.
    device: the device of these figures. class_size: the number of devices that do the same, out of ``devices`` in
    ``classes`` classes. notes: assumptions. slices: the device's timeline, if it was recorded.
    """

    module: str
    seconds: float
    compute: float
    slowed: float
    exposed: float
    communication: float
    bound: Bound
    peak_bytes: int
    devices: int
    classes: int
    device: int
    class_size: int
    collectives: tuple[CollectiveResult, ...]
    resources: tuple[ResourceUse, ...]
    notes: tuple[str, ...]
    slices: tuple[Slice, ...] = ()
    least: LeastStep | None = None
