"""Result of a simulation: figures of the step, of each collective and of each resource."""

from __future__ import annotations

from collectives.simulate.bound import Bound
from collectives.simulate.least_step import LeastStep
from collectives.simulate.reasons import Cause
from collectives.simulate.timeline import Slice
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """All executions of one collective in a step. Seconds are sums over the executions.

    bytes: size of its result.
    group_size: number of devices in a group; 2 for a permute.
    seconds: from when all members were ready to the end.
    exposed: seconds that the device waited for it.
    causes: parts of ``exposed`` by cause, the largest first.
    why: the largest cause as a sentence; "" if nothing is exposed.
    exchanges: the exchanges that it uses.
    independent: seconds of work that can overlap one execution.
    producer, user: names of the last producer of its operands and of the first user of its result; "" if there is none
      in its computation.
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
    """Use of an exchange, or of all exchanges together.

    busy: seconds for which transfers use it.
    hidden: seconds of these in which the device computes.
    hideable: upper bound of ``hidden`` for any schedule: the smaller of ``busy`` and the seconds of compute.
    """

    name: str
    busy: float
    hideable: float
    hidden: float

    @property
    def share(self) -> float:
        """Return ``hidden / hideable``; 1 if nothing can be hidden."""
        return min(self.hidden / self.hideable, 1.0) if self.hideable > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class StepRange:
    """Range of a step's seconds, by how much devices of one description differ.

    best: if all devices are as fast as the median one.
    worst: if the slowest device is as slow as in one of 20 sets of as many devices.
    """

    best: float
    worst: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """Result of a simulated step. Figures are those of ``device``, one of the devices that end last; times are in
    seconds.

    seconds: duration of the step: compute + slowed + exposed + the device's delay at the beginning.
    compute: time of kernels at full speed.
    slowed: additional time of kernels because collectives occupy processors.
    exposed: time for which the device waits for collectives.
    communication: time for which some collective is in flight.
    bound: lower bound for any order of the same instructions.
    least: lower bound for any order of the program's pieces, and the time of the program without overlap; None if
      unknown.
    peak_bytes: largest number of live bytes, including parameters, constants and results.
    class_size: number of devices that do the same as ``device``, of all ``devices``.
    classes: number of device classes.
    notes: assumptions, as sentences.
    slices: the device's timeline, if it was recorded.
    step_range: the range of ``seconds``; None if devices do not differ.
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
    step_range: StepRange | None = None
