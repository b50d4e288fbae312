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
from enum import Enum
from typing import Any

from launch.report.meetings import who_meets
from spmd.lazy_dataclass import dataclass


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
    """Instruction of the HLO module that was run, as recorded in the trace; "" for unknown fields.

    op_name: operation in the user's program.
    source: ``file:line``.
    """

    name: str
    opcode: str = ""
    op_name: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A collective of the program: its start, or itself if it has no done (``blocking``).

    kind: "all-gather", "all-reduce", ...
    bytes: of its result on one device.
    groups: device groups that communicate.
    pairs: (source, target) pairs of a permute.
    exchanges: those that it uses on the machine that the program was compiled for.
    independent: predicted seconds of work that can overlap one execution; None if unknown.
    limited, in_flight_limited: seconds of one execution that are exposed because of the memory limit and of the limits
      in flight, according to the scheduler.
    producer, user: the last producer of its operands and the first user of its result; "" for a parameter or the result
      of the computation.
    in_flight_limit: largest number of collectives in flight on one exchange.
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
    """Slice of a device's time from ``start`` to ``end``.

    kind: kind of its thunk: "Kernel", "Copy", "CollectiveStart", ...
    depth: 0 for the outermost; a slice lies within the preceding slices of smaller depth (a loop, its trips, a kernel).
    leaf: no slice lies within it.
    execution: number of earlier slices of the same name and kind in the step.
    reference: seconds that it takes alone (OverlapReport.reference), for leaves that compute; None if unknown.
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
    """One execution of a collective on one device in one step; the module's docstring has a diagram of its times.

    execution: number of earlier executions of the same collective in the step.
    issue_end: when its start was over.
    arrived: when ``last``, the last member, issued it.
    landed: when it was found to be complete, at the latest ``wait_end``.
    hidden: seconds from ``arrived`` to ``landed`` in which the device computed.
    slowed: its share of the additional time of concurrent kernels.
    parts: reasons with their seconds, the largest first; their sum is ``exposed``.
    why: the largest part, or ``slowed``, as a sentence.
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
    """Record of one device in one step.

    slices: by start, outer ones first.
    async_intervals: by ``issued``.
    stolen: lower bound of the seconds in which the device's thread had no core and did not wait for a collective,
      because other processes ran or it slept; None if not measured.
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
    """One step of all devices.

    blocking: a reference step, in which every collective was waited for right after its start.
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
    """Content of a trace file.

    instructions, sites: by name.
    predicted: the JSON of `spmd simulate --json` for the program on ``machine``, with "kernels": seconds of one
      execution by name; None if there is no prediction.
    clock_uncertainty: by device, the largest error of its corrected times, in seconds.
    notes: assumptions, including those of the program that wrote the trace.
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


# ---- results of the analysis
class Reference(Enum):
    """Source of the times of kernels and collectives by themselves."""

    BLOCKING_STEPS = "steps in which every collective was waited for where it was started"
    OUTSIDE_COLLECTIVES = (
        "the least time of each kernel with nothing in flight, and predicted times"
    )


@dataclass(frozen=True, slots=True)
class CollectiveOverlap:
    """All executions of one collective in a step. Times are means over devices and typical steps
    (OverlapReport.typical).

    seconds: from when the last member had issued it to its end (``landed``).
    alone: the same in reference steps, or predicted.
    exposed: time that the device starts it or waits for it.
    reference_exposed: the same in reference steps.
    hidden: part of ``seconds`` in which the device computed.
    slowed: additional time of concurrent kernels.
    effective: reference_exposed - exposed - slowed, the time that the overlap saved.
    parts: reasons of ``exposed`` with their seconds, the largest first.
    late: seconds of waiting for late members, by the device that was last.
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
    """One device's typical step.

    compute: seconds of leaves that are not collectives.
    slowed: seconds of ``compute`` above the reference while collectives are in flight.
    awaited: seconds that other devices waited because this one was last.
    stolen: as in DeviceStep.
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
    """One interval of a step's critical path.

    device: the device on which it lies; for a transfer, the one that waited for it.
    kind: "compute", "transfer" or "other" (nothing was recorded).
    name: of the instruction; "" for "other".
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
    """Report on the overlap of a run, from its timeline. Times are means over devices and over ``typical`` steps.

    run: as measured, with the results of the analysis filled in (Slice.reference; of AsyncInterval: hidden, parts,
      slowed, why).
    typical: numbers of the scheduled steps that figures are computed from: the middle half of them by length.
    typical_reference: likewise of the reference steps; () if there are none.
    shown: number of the step of median length.
    path: critical path of that step, in order of time.
    seconds, reference_seconds: of a scheduled and of a reference step (None if there are no reference steps).
    compute, slowed, exposed, hidden, other: of the scheduled step; seconds = compute + exposed + other.
    effective: sum over all collectives.
    elsewhere: the rest of reference_seconds - seconds: kernels that were slower or faster with nothing in flight, and
      what was not recorded.
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
