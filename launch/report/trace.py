"""A run's timeline as a trace for Perfetto and chrome://tracing: a process for each rank, a track for each stream.

Collectives in flight at one time have tracks of their own. Arrows lead from where a member issues a collective to where
it is complete on its peers; a counter shows the bytes in flight. Other data for a report on the run is in ``otherData``
(launch/report/overlap/read.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from launch.report.clock import ONE_CLOCK, ClockLine
from launch.report.overlap.model import Site
from launch.report.overlap.program_notes import ProgramNotes, program_notes
from launch.report.overlap.trace_notes import sites_json
from launch.report.recording import RecordedDevice, Recording
from launch.report.trace_flows import arrows, counters
from launch.target.cores import cores_of
from runtime.executable import Executable
from runtime.timeline.events import CollectiveEvent, Event, Stream, events_of
from spmd.analysis.source_lines import SourceLines
from spmd.hlo import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription

_COMPUTE = 0


@dataclass(frozen=True)
class TracedStep:
    """One device's step. ``processor``: nanoseconds for which its thread had a core; None if unknown."""

    number: int
    is_blocking: bool
    events: Sequence[Event]
    processor: int | None = None


@dataclass(frozen=True)
class TracedDevice:
    steps: Sequence[TracedStep]
    clock: ClockLine = ONE_CLOCK

    @property
    def first(self) -> int | None:
        """When its first event began, on rank 0's clock."""
        starts = (self.clock.on_first(event.start) for step in self.steps for event in step.events)
        return min(starts, default=None)


def collect_trace(
    executable: Executable, machine: MachineDescription | None = None
) -> dict[str, Any] | None:
    """Return the trace of all devices' last steps, in the JSON object form; None on ranks other than 0. Collective
    under MPI.

    ``machine``: the one that the program was compiled for, so that reports can show a prediction, too.
    """
    return recorded_trace(executable, Recording(executable).gather(), machine)


def recorded_trace(
    executable: Executable,
    recorded: Sequence[RecordedDevice] | None,
    machine: MachineDescription | None = None,
) -> dict[str, Any] | None:
    """Return the trace; None if ``recorded`` is None, as on ranks other than 0."""
    if recorded is None:
        return None
    notes = None
    if machine is not None:
        notes = program_notes(executable, machine, cores_of(executable))
    thunks = executable.program.thunks
    devices = [
        TracedDevice(
            [
                TracedStep(
                    step.number,
                    step.is_blocking,
                    events_of(thunks, step.timestamps),
                    one.processor.get(step.number),
                )
                for step in one.steps
            ],
            one.clock,
        )
        for one in recorded
    ]
    return chrome_trace(devices, executable.module, notes)


def chrome_trace(
    devices: Sequence[TracedDevice], module: HloModule, notes: ProgramNotes | None = None
) -> dict[str, Any]:
    """Return the trace. Times are relative to the first event."""
    firsts = [first for device in devices if (first := device.first) is not None]
    zero = min(firsts, default=0)
    said = _said(module)
    sites = {} if notes is None else notes.sites
    events = [
        event
        for number, device in enumerate(devices)
        for event in _device_events(number, device, zero, said, sites)
    ]
    about: dict[str, Any] = {
        "module": module.name,
        "clock_uncertainty_us": [device.clock.uncertainty / 1e3 for device in devices],
        "processor_us": _processor(devices),
    }
    if notes is not None:
        about |= {
            "machine": notes.machine,
            "collectives": sites_json(sites),
            "predicted": notes.predicted,
            "notes": list(notes.notes),
        }
    return {
        "traceEvents": [*events, *arrows(events, sites)],
        "displayTimeUnit": "ns",
        "otherData": about,
    }


def _processor(devices: Sequence[TracedDevice]) -> dict[str, list[float]]:
    """Return, for each step, the microseconds of each device, if those of all devices are known."""
    found = {}
    for steps in zip(*(device.steps for device in devices), strict=False):
        known = [step.processor / 1e3 for step in steps if step.processor is not None]
        if len(known) == len(devices):
            found[str(steps[0].number)] = known
    return found


def _device_events(
    number: int,
    device: TracedDevice,
    zero: int,
    said: Mapping[str, dict[str, str]],
    sites: Mapping[str, Site],
) -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", number, _COMPUTE, f"device {number}")
    yield _metadata("thread_name", number, _COMPUTE, Stream.COMPUTE.value)
    async_slices: list[dict[str, Any]] = []
    for step in device.steps:
        for event in step.events:
            own_notes = said.get(event.name, {})
            found = _slice(event, _EventContext(number, device.clock, zero, step), own_notes)
            if isinstance(event, CollectiveEvent):
                async_slices.append(found)
            yield found
    for track in range(1, 1 + _give_tracks(async_slices)):
        yield _metadata("thread_name", number, track, Stream.COMMUNICATION.value)
    yield from counters(async_slices, sites)


@dataclass(frozen=True, slots=True)
class _EventContext:
    """Step, device and clock of an event."""

    device: int
    clock: ClockLine
    zero: int
    step: TracedStep

    def microseconds(self, time: int) -> float:
        return (self.clock.on_first(time) - self.zero) / 1e3


def _slice(event: Event, context: _EventContext, said: Mapping[str, str]) -> dict[str, Any]:
    """Return the trace event. A collective in flight lasts until it is complete."""
    start = context.microseconds(event.start)
    end = context.microseconds(event.landed if isinstance(event, CollectiveEvent) else event.end)
    args: dict[str, Any] = {"step": context.step.number, "bytes": event.bytes, "depth": event.depth}
    if context.step.is_blocking:
        args["blocking"] = True
    if isinstance(event, CollectiveEvent):
        args |= {
            "landed": end,
            "wait_start": context.microseconds(event.wait_start),
            "wait_end": context.microseconds(event.end),
        }
    return {
        "name": event.name,
        "cat": event.kind,
        "ph": "X",
        "ts": start,
        "dur": max(end - start, 0.0),
        "pid": context.device,
        "tid": _COMPUTE,
        "args": {**args, **said},
    }


def _give_tracks(async_slices: Iterable[dict[str, Any]]) -> int:
    """Give each slice the first free track, since events of one track must not overlap. Returns the
    number of tracks.
    """
    ends: list[float] = []
    for async_slice in sorted(async_slices, key=lambda one: float(one["ts"])):
        start, end = async_slice["ts"], async_slice["ts"] + async_slice["dur"]
        free = next((track for track, until in enumerate(ends) if until <= start), len(ends))
        ends[free : free + 1] = [end]
        async_slice["tid"] = 1 + free
    return len(ends)


def _metadata(what: str, device: int, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": device, "tid": track, "args": {"name": name}}


def _said(module: HloModule) -> dict[str, dict[str, str]]:
    """Return, for each instruction, the operation's name in the user's program, its source line, and the HLO opcode."""
    lines = SourceLines(module)
    notes = {}
    for instruction in module.all_instructions():
        said = {
            "opcode": str(instruction.opcode),
            "op_name": instruction.annotations.metadata.op_name,
            "source": lines.of(instruction),
        }
        notes[instruction.name] = {key: text for key, text in said.items() if text}
    return notes
