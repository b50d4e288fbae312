"""A run's timeline as a trace for Perfetto and chrome://tracing: a process for each rank, a track for each stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from launch.rank_executable import RankExecutable
from launch.report.clock import ClockOffset, clock_offsets
from runtime.executable import Executable
from runtime.timeline.events import Event, Stream, events_of
from runtime.timeline.recorder import RecordedStep
from spmd.analysis.source_lines import SourceLines
from spmd.hlo import HloModule

_TRACKS = {Stream.COMPUTE: 0, Stream.COMMUNICATION: 1}


def collect_trace(executable: Executable) -> dict[str, Any] | None:
    """The trace of all devices' last steps, in the JSON object form; None on ranks but 0. Collective under MPI."""
    stamps = executable.stamps()
    offsets = [ClockOffset(0, 0)] * executable.num_devices
    if isinstance(executable, RankExecutable):
        offsets = clock_offsets(executable.communicator)
        gathered = executable.communicator.gather_bytes(_pack(stamps[0]))
        if gathered is None:
            return None
        stamps = [_unpack(data) for data in gathered]
    thunks = executable.program.thunks
    steps = [[events_of(thunks, step.stamps) for step in own] for own in stamps]
    return chrome_trace(steps, offsets, executable.module)


def chrome_trace(
    devices: Sequence[Sequence[Sequence[Event]]],
    offsets: Sequence[ClockOffset],
    module: HloModule,
) -> dict[str, Any]:
    """``devices[d][s]``: events of device d's step s. Times count from the first event of all."""
    origins = [_origin(steps, offset) for steps, offset in zip(devices, offsets, strict=True)]
    first = min((origin for origin in origins if origin is not None), default=0)
    said = _notes(module)
    events: list[dict[str, Any]] = []
    for device, (steps, offset) in enumerate(zip(devices, offsets, strict=True)):
        events += _names(device)
        zero = first + offset.ahead
        for number, step in enumerate(steps):
            events += (_slice(event, device, zero, number, said) for event in step)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "module": module.name,
            "clock_uncertainty_us": [offset.uncertainty / 1e3 for offset in offsets],
        },
    }


def _slice(
    event: Event, device: int, zero: int, step: int, said: dict[str, dict[str, str]]
) -> dict[str, Any]:
    return {
        "name": event.name,
        "cat": event.kind,
        "ph": "X",
        "ts": (event.start - zero) / 1e3,
        "dur": event.nanoseconds / 1e3,
        "pid": device,
        "tid": _TRACKS[event.stream],
        "args": {"step": step, "bytes": event.bytes, **said.get(event.name, {})},
    }


def _names(device: int) -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", device, 0, f"device {device}")
    for stream, track in _TRACKS.items():
        yield _metadata("thread_name", device, track, stream.value)


def _metadata(what: str, device: int, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": device, "tid": track, "args": {"name": name}}


def _notes(module: HloModule) -> dict[str, dict[str, str]]:
    """By instruction: the operation's name in the user's program, its source line, and the HLO opcode."""
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


def _origin(steps: Iterable[Iterable[Event]], offset: ClockOffset) -> int | None:
    """When a device's first event began, on rank 0's clock."""
    return min((event.start - offset.ahead for step in steps for event in step), default=None)


def _pack(steps: Sequence[RecordedStep]) -> bytes:
    """Plain integers: of each step its number, whether it is blocking, and how many stamps it has; then the stamps."""
    heads = [(step.number, int(step.is_blocking), len(step.stamps)) for step in steps]
    flat = [value for step in steps for stamp in step.stamps for value in stamp]
    return json.dumps(heads).encode() + b"\n" + np.array(flat, np.int64).tobytes()


def _unpack(data: bytes) -> list[RecordedStep]:
    head, _, body = data.partition(b"\n")
    stamps = np.frombuffer(body, np.int64).reshape(-1, 2).tolist()
    steps, start = [], 0
    for number, is_blocking, length in json.loads(head):
        own = tuple((mark, at) for mark, at in stamps[start : start + length])
        steps.append(RecordedStep(number, bool(is_blocking), own))
        start += length
    return steps
