"""Records of the overlap report: the run as it was measured, and the results of its analysis.

    trace file ── read ──► MeasuredRun: instructions, steps, devices, slices, intervals ── analysis ──► OverlapReport

Plain values, from which text, JSON and pages are made. All times are seconds. Instants count from the run's first event
on device 0's clock, to which the other devices' were corrected (MeasuredRun.clock_uncertainty).

One collective in flight on one device, and its instants; ``last`` is the member that issued last:

    this device   |start|  kernel  |  kernel  |......wait......|
                  issued           wait_begin ^                ^ wait_end
    last member          |start| kernel |
                         arrived
    the bytes             ====================================
                          from arrived to landed: ``seconds``
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from launch.report.meetings import who_meets


class Reason(Enum):
    """Why a device waited for a collective. Values are the texts of reports, the same as those of `spmd simulate`."""

    LATE_PEER = "late peer"
    """Another member issued it later than this device."""
    CONTENTION = "contention"
    """It took longer than it does alone, and no other collective was on its exchange."""
    RESOURCE = "resource limit"
    """Another collective was on its exchange: at the same time, or before, so that it could not be issued earlier."""
    MEMORY = "memory limit"
    """There is independent work, but according to the scheduler overlap would exceed the memory limit."""
    DEPENDENCY = "dependency"
    """Too little work is independent of it: the rest precedes it or depends on it."""
    BLOCKING = "blocking"
    """There is independent work, but the collective is synchronous: it has no start and done to place work between."""
    ORDER = "order"
    """There is independent work, but the schedule places it elsewhere."""
    ISSUE = "issue"
    """The device was busy starting it: packing operands, calling MPI."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """Instruction of the HLO module that was run, as far as the trace tells; "" for unknown fields.

    op_name: in the user's program. source: ``file:line``.
    """

    name: str
    opcode: str = ""
    op_name: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A collective of the program: its start, or itself if it has no done (``blocking``).

    kind: "all-gather", "all-reduce", ... bytes: of its result on one device. groups: of devices that communicate.
    pairs: of a permute, (source, target). exchanges: those that it uses on the machine that the program was compiled
    for. independent: predicted seconds of work that can overlap one execution; None if they are unknown. limited,
    in_flight_limited: seconds of one execution that its memory limit and its limits in flight leave exposed, as the
    scheduler states. producer, user: the last producer of its operands and the first user of its result; "" if that is
    a parameter, or the result of the computation. in_flight_limit: as many may be in flight on one exchange.
    """

    name: str
    kind: str
    bytes: int = 0
    groups: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    exchanges: tuple[str, ...] = ()
    blocking: bool = False
    independent: float | None = None
    limited: float = 0.0
    in_flight_limited: float = 0.0
    producer: str = ""
    user: str = ""
    in_flight_limit: int = 1

    @property
    def group_size(self) -> int:
        """Return the number of devices of the largest group; 1 if the groups are unknown."""
        return 2 if self.pairs else max((len(group) for group in self.groups), default=1)

    def meetings(self) -> dict[int, tuple[int, ...]]:
        """Return for each device the devices that it communicates with, itself included. Other devices are missing."""
        return who_meets(self.groups, self.pairs)


@dataclass(frozen=True, slots=True)
class Slice:
    """Slice of a device's time from ``start`` to ``end``. kind: of its thunk: "Kernel", "Copy", "CollectiveStart", ...

    depth: 0 for the outermost; a slice lies within those before it of lesser depth (a loop, its trips, a kernel).
    leaf: nothing lies within it. execution: how many of the same name and kind came before it in the step.
    reference: seconds that it takes by itself, where that is known (OverlapReport.reference); of leaves that compute.
    """

    name: str
    kind: str
    start: float
    end: float
    bytes: int = 0
    depth: int = 0
    leaf: bool = True
    execution: int = 0
    reference: float | None = None

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class AsyncInterval:
    """One execution of a collective on one device in one step; see the picture above.

    execution: number of earlier ones of the same name in the step. issue_end: when its start was over. arrived: when
    ``last``, the last member, issued it. landed: when it was found complete, at the latest wait_end.
    hidden: of the seconds from arrived to landed, those in which the device computed.
    parts: reasons with their seconds, the largest first; their sum is ``exposed``. slowed: its share of the additional
    time of concurrent kernels. why: the largest part, or ``slowed``, in words.
    """

    name: str
    execution: int
    device: int
    issued: float
    issue_end: float
    arrived: float
    landed: float
    wait_begin: float
    wait_end: float
    last: int
    members: tuple[int, ...]
    hidden: float = 0.0
    slowed: float = 0.0
    parts: tuple[tuple[Reason, float], ...] = ()
    why: str = ""

    @property
    def seconds(self) -> float:
        """Under way with all members there."""
        return max(self.landed - self.arrived, 0.0)

    @property
    def exposed(self) -> float:
        """The device does nothing else: it starts it, or waits for it."""
        return (self.issue_end - self.issued) + (self.wait_end - self.wait_begin)


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """Record of one device in one step. slices: by start, outer ones first. async_intervals: by ``issued``.

    stolen: seconds of it, at least, in which the device's thread had no core and did not wait for a collective: other
    processes had it, or it slept; None if that was not measured.
    """

    device: int
    begin: float
    end: float
    slices: tuple[Slice, ...]
    async_intervals: tuple[AsyncInterval, ...]
    stolen: float | None = None

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step of all devices. blocking: a reference step, in which every collective was waited for where it was
    started.

    devices: in order of their numbers.
    """

    number: int
    blocking: bool
    devices: tuple[DeviceStep, ...]

    @property
    def begin(self) -> float:
        return min(one.begin for one in self.devices)

    @property
    def end(self) -> float:
        return max(one.end for one in self.devices)

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class MeasuredRun:
    """A trace file's content. instructions and sites: by name. predicted: what `spmd simulate --json` prints for the
    program on ``machine``, and under "kernels" seconds of one execution by name; None if there is no prediction.

    clock_uncertainty: by device, seconds by which its corrected instants may be wrong. notes: assumptions, also those
    of the program that wrote the trace.
    """

    module: str
    machine: str
    steps: tuple[MeasuredStep, ...]
    instructions: Mapping[str, Instruction]
    sites: Mapping[str, Site]
    clock_uncertainty: tuple[float, ...]
    predicted: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        return len(self.clock_uncertainty)


# ---- what was found
class Reference(Enum):
    """Source of the times of kernels and collectives by themselves."""

    BLOCKING_STEPS = "steps in which every collective was waited for where it was started"
    OUTSIDE_COLLECTIVES = (
        "the least time of each kernel with nothing in flight, and predicted times"
    )


@dataclass(frozen=True, slots=True)
class CollectiveOverlap:
    """All executions of one collective in a step: means over devices and typical steps (OverlapReport.typical).

    seconds: from when the last member had issued it until it had landed. alone: the same in reference steps, or
    predicted. exposed: the device starts it or waits for it. reference_exposed: the same in reference steps.
    hidden: of ``seconds``, while the device computed. slowed: additional time of concurrent kernels.
    effective: reference_exposed - exposed - slowed, the time that the overlap saved.
    parts: of exposed, the largest first. late: of the late peer's part, by the device that came last.
    predicted, predicted_exposed, predicted_why: None and "" if there is no prediction.
    """

    site: Site
    executions: float
    seconds: float
    alone: float
    exposed: float
    reference_exposed: float
    hidden: float
    slowed: float
    effective: float
    parts: tuple[tuple[Reason, float], ...]
    late: tuple[tuple[int, float], ...]
    why: str
    predicted: float | None = None
    predicted_exposed: float | None = None
    predicted_why: str = ""


@dataclass(frozen=True, slots=True)
class DeviceOverlap:
    """One device's typical step. compute: leaves that are no collectives. slowed: of compute, above the reference
    while collectives are in flight.

    awaited: seconds that others waited because it came last. stolen: see DeviceStep.
    """

    device: int
    seconds: float
    compute: float
    slowed: float
    exposed: float
    awaited: float
    stolen: float | None


@dataclass(frozen=True, slots=True)
class PathPiece:
    """A stretch of a step's critical path. device: on which it lies; of a transfer, the one that waited for it.

    kind: "compute", "transfer" or "other" (nothing was recorded). name: of the instruction; "" for other.
    """

    device: int
    kind: str
    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class OverlapReport:
    """Report on the overlap of a run, from its timeline.

    typical: numbers of the scheduled steps that figures are of, the middle half of them by length: figures are means
    over these, so that they add up. typical_reference: likewise of the reference steps, () where there are none.
    shown: the number of the step of median length, whose critical path ``path`` is, in order of time.
    run: as measured, with what was found filled in (Slice.reference, Flight.hidden, parts, slowed, why).

    Means over devices: seconds and reference_seconds of a step (reference_seconds: None where there are no reference
    steps); compute, slowed, exposed, hidden and other of the scheduled one, where seconds = compute + exposed + other.
    effective: over all collectives. elsewhere: what else makes reference_seconds - seconds: kernels that were slower
    or faster with nothing in flight, and what was not recorded.
    """

    run: MeasuredRun
    reference: Reference
    typical: tuple[int, ...]
    typical_reference: tuple[int, ...]
    shown: int
    seconds: float
    reference_seconds: float | None
    compute: float
    slowed: float
    exposed: float
    hidden: float
    other: float
    effective: float
    elsewhere: float
    collectives: tuple[CollectiveOverlap, ...]
    devices: tuple[DeviceOverlap, ...]
    path: tuple[PathPiece, ...]
    notes: tuple[str, ...]
