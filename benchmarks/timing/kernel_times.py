"""Kernels' times in a program's steps beside their predictions, by kind: what the cost model has wrong."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from launch.calibration.timing import cores
from runtime.cpu.prediction.step import PredictedThunk, predicted_step
from runtime.executable import Executable
from runtime.program.thunks import CollectiveDoneThunk, traverse
from runtime.timeline.events import Event, Stream, events_of
from spmd.machine.description import MachineDescription

#: A thunk, by its name and kind.
Named = tuple[str, str]


@dataclass(frozen=True)
class Row:
    """All executions of thunks of one name and kind in a step of one device; seconds."""

    name: str
    kind: str
    predicted: float
    measured: float
    compute: float
    memory: float
    sizes: str


#: Seconds in a step, the least over steps and devices: what each thunk does when nobody disturbs it.
Least: TypeAlias = dict[Named, float]


def least_of(executable: Executable) -> Least:
    """Return the least seconds of each thunk over the steps that the devices remember, except each device's first."""
    thunks = executable.program.thunks
    starts = {
        one.name: one.start for one in traverse(thunks) if isinstance(one, CollectiveDoneThunk)
    }
    steps = (
        _by_thunk(events_of(thunks, step.timestamps), starts)
        for device in executable.recorded_steps()
        for step in device[1:]
    )
    return least_of_all(steps)


def least_of_all(found: Iterable[Least]) -> Least:
    least: Least = {}
    for one in found:
        for key, seconds in one.items():
            least[key] = min(least.get(key, math.inf), seconds)
    return least


def rows_of(executable: Executable, machine: MachineDescription, least: Least) -> list[Row]:
    """Return a row for each thunk that has been measured."""
    prediction = predicted_step(executable.program, executable.module, machine, cores())
    turns = math.ceil(executable.num_devices / cores())
    grouped: dict[Named, list[PredictedThunk]] = defaultdict(list)
    for one in prediction.thunks:
        kind = type(one.thunk).__name__.removesuffix("Thunk")
        grouped[one.thunk.name, kind].append(one)
    return [
        Row(
            name,
            own[0].kind,
            turns * sum(x.seconds for x in own),
            least[name, kind],
            turns * sum(x.compute for x in own),
            turns * sum(x.memory for x in own),
            _sizes(own[0]),
        )
        for (name, kind), own in grouped.items()
        if (name, kind) in least
    ]


def _by_thunk(events: Iterable[Event], starts: dict[str, str]) -> Least:
    """Return the seconds of each thunk in a step.

    ``starts`` gives the start of each collective's done, since the two count as one thunk.
    """
    found: dict[Named, float] = defaultdict(float)
    for event in events:
        inside = event.kind in ("ThunkSequence", "While", "Conditional")
        if event.stream is Stream.COMPUTE and not inside:
            own = event.name, event.kind
            if event.kind == "CollectiveDone":
                own = starts[event.name], "CollectiveStart"
            found[own] += 1e-9 * event.nanoseconds
    return found


def _sizes(one: PredictedThunk) -> str:
    """Return the dimensions of the kernel's arrays as text for people."""
    uses = {use.array.view.dims: None for use in one.thunk.buffer_uses()}
    return " ".join("x".join(map(str, dims)) or "1" for dims in list(uses)[:6])


def print_kinds(rows: Sequence[Row], rounds: Sequence[Sequence[Row]]) -> None:
    """Print the kinds of kernels, the one that takes most time first.

    ``rounds`` are the same rows by the rates and times of each round.
    """
    kinds = _by_kind(rows)
    of_rounds = [_by_kind(own) for own in rounds]
    print(
        f"{'':38s} {'count':>6s} {'predicted ms':>12s} {'measured ms':>12s} {'best':>6s} {'round':>6s}"
    )
    for kind, own in sorted(kinds.items(), key=lambda item: -sum(r.measured for r in item[1])):
        ratio = statistics.median(_ratio(one[kind]) for one in of_rounds if kind in one)
        predicted, measured = sum(r.predicted for r in own), sum(r.measured for r in own)
        print(f"{_line(f'  {kind}', len(own), predicted, measured)} {ratio:6.2f}")


def _by_kind(rows: Iterable[Row]) -> dict[str, list[Row]]:
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row.kind].append(row)
    return kinds


def _ratio(rows: Iterable[Row]) -> float:
    pairs = [(row.predicted, row.measured) for row in rows]
    measured = sum(m for _, m in pairs)
    return sum(p for p, _ in pairs) / measured if measured else math.inf


def print_rows(rows: Sequence[Row], most: int) -> None:
    """Print the ``most`` rows that are farthest off in seconds."""
    for row in sorted(rows, key=lambda r: -abs(r.predicted - r.measured))[:most]:
        parts = f"compute {1e3 * row.compute:.3f}, memory {1e3 * row.memory:.3f}"
        named = _line(f"    {row.name[:34]}", 1, row.predicted, row.measured)
        print(f"{named} {row.kind} {parts} {row.sizes}")


def _line(name: str, count: int, predicted: float, measured: float) -> str:
    ratio = predicted / measured if measured else math.inf
    return f"{name:38s} {count:6d} {1e3 * predicted:12.3f} {1e3 * measured:12.3f} {ratio:6.2f}"
