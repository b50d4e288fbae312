"""Measured durations of work: from a profile's file to options of a compilation."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from collectives.cost.estimator import CostError
from collectives.cost.profiled import MAX_BYTES, read_durations
from launch.data.input_file import read_at_most
from launch.report.trace_events import timed_events
from spmd.json_fields import JsonFields, read_json

#: Thunks that compute or copy, and nothing else.
_WORK = frozenset({"Kernel", "Copy"})
_MICROSECONDS = (0.0, 1e15)


def measured_durations(file: Path) -> tuple[tuple[str, float], ...]:
    """Return the seconds of one execution of each instruction, in order of names: from a trace of `spmd profile`, or as
    the file states them.

    Of a trace, only the steps that wait for every collective are used, if there are any: nothing is in flight during
    their work, and the scheduler knows the slowdown by collectives. Raises CostError for other files.
    """
    data = read_at_most(file, MAX_BYTES, CostError)
    found = JsonFields(
        read_json(data, str(file), "profile", MAX_BYTES, CostError), str(file), CostError
    )
    if not found.has("traceEvents"):
        return tuple(sorted(read_durations(data, str(file)).compute.items()))
    return durations_of(found)


def durations_of(trace: JsonFields) -> tuple[tuple[str, float], ...]:
    """Return the medians over all devices and steps."""
    events = list(_events(trace))
    waiting = [event for event in events if event[2]]
    seconds: dict[str, list[float]] = defaultdict(list)
    for name, taken, _ in waiting or events:
        seconds[name].append(taken)
    if not seconds:
        raise CostError(f"{trace.where}: the trace has no kernel")
    return tuple(sorted((name, statistics.median(taken)) for name, taken in seconds.items()))


def _events(trace: JsonFields) -> Iterator[tuple[str, float, bool]]:
    """Name, seconds, and whether its step waits for every collective."""
    for event in timed_events(trace):
        if event.text("cat") not in _WORK:
            continue
        args = event.nested("args")
        taken = event.number("dur", _MICROSECONDS) / 1e6
        yield event.text("name"), taken, args.has("blocking")
