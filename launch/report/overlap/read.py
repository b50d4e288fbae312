"""A trace file, as launch/report/trace.py writes it, read into a MeasuredRun. Nothing but the file is asked.

traceEvents   of these the "X": what a device does, in the order in which it ends; collectives in flight (cat
              "Collective") with when they landed and were waited for
otherData     module, machine, clock_uncertainty_us, collectives (trace_notes.py), predicted, processor_us, notes
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from launch.report.overlap.matching import matched
from launch.report.overlap.model import (
    AsyncInterval,
    DeviceStep,
    Instruction,
    MeasuredRun,
    MeasuredStep,
    Site,
    Slice,
)
from launch.report.overlap.trace_notes import read_predicted, read_sites
from launch.report.trace_events import timed_events
from spmd.errors import SpmdError
from spmd.json_fields import JsonFields, read_json, shown
from spmd.lazy_dataclass import dataclass

#: Some hundred thousand events; as Python objects they take several times as much.
MAX_BYTES = 1 << 28

_MICROSECONDS = (-1e15, 1e15)
_LENGTH = (0.0, 1e15)  # microseconds
_NUMBER = (0, 1 << 24)
_BYTES = (0, 1 << 62)
_COLLECTIVE, _START = "Collective", "CollectiveStart"


class TraceError(SpmdError):
    """A trace that no overlap report can be made of."""


def read_trace(data: bytes, where: str) -> MeasuredRun:
    """Return the run of a trace file. Raises TraceError if it is no trace that this project wrote."""
    return run_of_trace(read_json(data, where, "trace", MAX_BYTES, TraceError), where)


def run_of_trace(trace: object, where: str) -> MeasuredRun:
    """Return the run. ``trace``: the JSON object. Raises TraceError as ``read_trace`` does."""
    fields = JsonFields(trace, where, TraceError)
    if not fields.has("otherData"):
        raise TraceError(
            f"{where}: not a trace of `spmd profile --trace` or `spmd run --profile`: otherData is missing"
        )
    other = fields.nested("otherData")
    events = [*_events(fields)]
    uncertain = _numbers(other, "clock_uncertainty_us")
    count = len(uncertain)
    if not events:
        raise TraceError(f"{where}: no step was recorded")
    if any(not 0 <= event.device < count for event in events):
        raise TraceError(
            f"{where}: has events of more devices than the {count} whose clocks it names"
        )
    instructions = {event.name: event.instruction for event in events}
    sites = read_sites(other) if other.has("collectives") else {}
    everyone = tuple(range(count))
    for event in events:
        if event.kind == _COLLECTIVE and event.name not in sites:
            sites[event.name] = _unknown_site(event, everyone)
    steps = [*_steps(events, sites, _processor(other, count), count)]
    return MeasuredRun(
        module=other.text("module"),
        machine=other.text("machine") if other.has("machine") else "",
        steps=tuple(steps),
        instructions=instructions,
        sites=sites,
        clock_uncertainty=tuple(1e-6 * one for one in uncertain),
        predicted=read_predicted(other),
        notes=tuple(_texts(other, "notes")),
    )


# ---- events
@dataclass(frozen=True, slots=True)
class _Event:
    """An event with a duration; ``landed`` and ``wait_start`` are those of collectives in flight."""

    device: int
    step: int
    blocking: bool
    kind: str
    start: float
    end: float
    bytes: int
    depth: int
    instruction: Instruction
    wait_start: float
    landed: float

    @property
    def name(self) -> str:
        return self.instruction.name


def _events(trace: JsonFields) -> Iterator[_Event]:
    return map(_event, timed_events(trace))


def _event(event: JsonFields) -> _Event:
    said = event.nested("args")
    kind, start = event.text("cat"), event.number("ts", _MICROSECONDS)
    end = start + event.number("dur", _LENGTH)
    if kind == _COLLECTIVE and not said.has("landed"):
        raise TraceError(f"{event.where}: does not say when the collective landed: an older trace")
    wait_start = said.number("wait_start", _MICROSECONDS, end)
    wait_end = said.number("wait_end", _MICROSECONDS, end)
    landed = said.number("landed", _MICROSECONDS, end)
    return _Event(
        device=event.integer("pid", _NUMBER),
        step=said.integer("step", _NUMBER),
        blocking=said.has("blocking") and said.pop("blocking") is True,
        kind=kind,
        start=1e-6 * start,
        end=1e-6 * wait_end,
        bytes=said.integer("bytes", _BYTES, 0),
        depth=said.integer("depth", _NUMBER),
        instruction=Instruction(
            event.text("name"), *(_said(said, what) for what in ("opcode", "op_name", "source"))
        ),
        wait_start=1e-6 * wait_start,
        landed=1e-6 * min(landed, wait_end),
    )


def _said(fields: JsonFields, name: str) -> str:
    """Read a text of any length: a program's scopes and paths may be long."""
    found = fields.pop(name) if fields.has(name) else ""
    if not isinstance(found, str):
        raise fields.error(f"{fields.where}: {name} must be a string, found {shown(found)}")
    return found


def _unknown_site(event: _Event, everyone: tuple[int, ...]) -> Site:
    """Return the site of a collective without notes in the trace: all devices are assumed to take part."""
    kind = event.instruction.opcode.removesuffix("-start")
    return Site(event.name, kind, event.bytes, (everyone,))


# ---- steps
def _steps(
    events: Iterable[_Event],
    sites: Mapping[str, Site],
    processor: Mapping[int, Sequence[float]],
    count: int,
) -> Iterator[MeasuredStep]:
    """Yield the steps in which all devices have events, by number."""
    found: dict[int, dict[int, list[_Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        found[event.step][event.device].append(event)
    for number in sorted(found):
        own = found[number]
        if len(own) == count:
            known = processor.get(number)
            devices = [
                _device_step(device, own[device], known[device] if known else None)
                for device in range(count)
            ]
            blocking = any(event.blocking for event in own[0])
            yield MeasuredStep(number, blocking, matched(devices, sites))


def _device_step(device: int, events: Sequence[_Event], processor: float | None) -> DeviceStep:
    """Return the step of one device, without the other members of its collectives."""
    running = [event for event in events if event.kind != _COLLECTIVE]
    issue_ends = defaultdict(list)
    for event in running:
        if event.kind == _START:
            issue_ends[event.name].append(event.end)
    flown = sorted(
        (event for event in events if event.kind == _COLLECTIVE), key=lambda one: one.start
    )
    found = DeviceStep(
        device,
        min(event.start for event in events),
        max(event.end for event in events),
        tuple(_slices(running)),
        tuple(_async_intervals(device, flown, issue_ends)),
    )
    return found if processor is None else replace(found, stolen=_stolen(found, processor))


def _stolen(step: DeviceStep, processor: float) -> float:
    """Return a lower bound of the time without a core: while it waits, a thread may sleep or poll."""
    waited = sum(
        async_interval.wait_end - async_interval.wait_begin
        for async_interval in step.async_intervals
    )
    return max(step.seconds - processor - waited, 0.0)


def _slices(events: Sequence[_Event]) -> list[Slice]:
    """Return the slices. ``events``: in the order of their ends, so that the last one inside another directly precedes
    it.
    """
    counts: dict[tuple[str, str], int] = defaultdict(int)
    found = []
    depth_before = 0
    for event in events:
        execution = counts[event.name, event.kind]
        counts[event.name, event.kind] += 1
        found.append(
            Slice(
                event.name,
                event.kind,
                event.start,
                event.end,
                event.bytes,
                event.depth,
                depth_before <= event.depth,
                execution,
            )
        )
        depth_before = event.depth
    return sorted(found, key=lambda one: (one.start, one.depth))


def _async_intervals(
    device: int, events: Iterable[_Event], issue_ends: Mapping[str, Sequence[float]]
) -> Iterator[AsyncInterval]:
    counts: dict[str, int] = defaultdict(int)
    for event in events:
        execution = counts[event.name]
        counts[event.name] += 1
        ends = issue_ends.get(event.name, ())
        issue_end = ends[execution] if execution < len(ends) else event.start
        yield AsyncInterval(
            name=event.name,
            execution=execution,
            device=device,
            issued=event.start,
            issue_end=min(issue_end, event.wait_start),
            arrived=event.start,
            landed=event.landed,
            wait_begin=event.wait_start,
            wait_end=event.end,
            last=device,
            members=(device,),
        )


# ---- what the trace says besides
def _processor(other: JsonFields, count: int) -> dict[int, list[float]]:
    """Return for each step the seconds during which each device's thread had a core."""
    if not other.has("processor_us"):
        return {}
    by_step = other.nested("processor_us")
    found = {}
    for name in by_step.names:
        own = _numbers(by_step, name)
        if not name.isdecimal() or len(name) > len(str(_NUMBER[1])) or len(own) != count:
            raise TraceError(f"{by_step.where}: must give {count} numbers for each step")
        found[int(name)] = [1e-6 * one for one in own]
    return found


def _numbers(other: JsonFields, name: str) -> list[float]:
    """Return a list of times in microseconds."""
    found = other.pop(name)
    if not isinstance(found, list) or not all(map(_is_length, found)):
        raise TraceError(
            f"{other.where}: {name} must be a list of numbers from {_LENGTH[0]:g} to {_LENGTH[1]:g}"
        )
    return [float(one) for one in found]


def _is_length(found: object) -> bool:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return False
    return _LENGTH[0] <= found <= _LENGTH[1]


def _texts(other: JsonFields, name: str) -> list[str]:
    found = other.pop(name) if other.has(name) else []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TraceError(f"{other.where}: {name} must be a list of strings")
    return found
