"""Predicted over measured times of steps and of their kernels, by kind: what the cost model has wrong.

    python -m benchmarks.prediction_report CASES [--only REGEX] [--steps 30] [--machine F.json | --calibrate]
        [--own-time] [--most 0] [--json FILE]

Each case runs in this process on as many devices as it has, and every device takes down when its thunks begin and end.
A thunk's measured time is the least of its times over the steps and devices, what it does when nobody disturbs it; a
step's is the median and the least of the steps. --calibrate measures the machine first, and again behind the last case;
--machine takes a description from a file; else it is what `spmd calibrate` left, or the one that is shipped. --most
lists so many kernels of each case, those that are farthest off in seconds. --own-time takes kernels' times from the
device threads' own CPU clock, for a machine where others run, too: what a collective waits there counts as its work.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import benchmarks.timing.own_clock  # noqa: F401 - before native code asks for a clock
import spmd
from benchmarks.timing.turns import geometric_mean
from launch.calibrated import machine_here
from launch.calibration.machine import CalibrationOptions, measure_machine
from launch.execution import time_steps
from launch.inputs import SeededInputs
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.report.environment import describe_environment
from runtime.executable import Executable
from runtime.prediction.step import PredictedThunk, predicted_step
from runtime.thunks.collective import CollectiveDoneThunk
from runtime.thunks.thunk import walk
from runtime.timeline.events import Event, Stream, events_of
from spmd.machine.description import MachineDescription
from spmd.machine.reader import read_machine

#: As `spmd bench` has it.
DEVIATION = 0.05
WARM_UP = 3
HEADER = f"{'':38s} {'count':>6s} {'predicted ms':>12s} {'measured ms':>12s} {'ratio':>6s}"


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


def measured(case: Path, machine: MachineDescription, steps: int) -> dict[str, Any]:
    devices = json.loads((case / "case.json").read_text())["num_partitions"]
    options = CompileOptions(machine=machine)
    executable = compile_module(spmd.load(case / "module.hlo"), devices, options)
    executable.record = True
    shapes = [boundary.shape for boundary in executable.inputs]
    least: dict[tuple[str, str], float] = defaultdict(lambda: math.inf)
    seconds: list[float] = []
    started = {
        one.name: one.start
        for one in walk(executable.program.thunks)
        if isinstance(one, CollectiveDoneThunk)
    }
    while len(seconds) < steps:
        state = executable.put(SeededInputs(0, shapes, DEVIATION))
        seconds += time_steps(executable, state, WARM_UP + 7)[WARM_UP:]
        for device in executable.stamps():
            for stamps in device[1:]:
                events = events_of(executable.program.thunks, stamps)
                for key, value in by_thunk(events, started).items():
                    least[key] = min(least[key], value)
    rows, predicted = compared(executable, machine, least)
    return {
        "case": case.name,
        "predicted_ms": 1e3 * predicted,
        "median_ms": 1e3 * statistics.median(seconds),
        "least_ms": 1e3 * min(seconds),
        "kernels_ms": 1e3 * sum(row.measured for row in rows),
        "rows": rows,
    }


def by_thunk(events: Iterable[Event], started: dict[str, str]) -> dict[tuple[str, str], float]:
    """Seconds of a step, by name and kind. ``started``: a collective's done and its start, which are one."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for event in events:
        inside = event.kind in ("ThunkSequence", "While", "Conditional")
        if event.stream is Stream.COMPUTE and not inside:
            own = event.name, event.kind
            if event.kind == "CollectiveDone":
                own = started[event.name], "CollectiveStart"
            found[own] += 1e-9 * event.nanoseconds
    return found


def compared(
    executable: Executable, machine: MachineDescription, least: dict[tuple[str, str], float]
) -> tuple[list[Row], float]:
    cores = len(os.sched_getaffinity(0))
    prediction = predicted_step(executable.program, executable.module, machine, cores)
    turns = math.ceil(executable.num_devices / cores)
    grouped: dict[tuple[str, str], list[PredictedThunk]] = defaultdict(list)
    for one in prediction.thunks:
        kind = type(one.thunk).__name__.removesuffix("Thunk")
        grouped[one.thunk.name, kind].append(one)
    rows = [
        Row(
            name,
            own[0].kind,
            turns * sum(x.seconds for x in own),
            least[name, kind],
            turns * sum(x.compute for x in own),
            turns * sum(x.memory for x in own),
            sizes(own[0]),
        )
        for (name, kind), own in grouped.items()
        if (name, kind) in least
    ]
    return rows, prediction.seconds


def sizes(one: PredictedThunk) -> str:
    """Of the kernel's arrays, for people."""
    uses = {use.place.view.dims: None for use in one.thunk.buffer_uses()}
    return " ".join("x".join(map(str, dims)) or "1" for dims in list(uses)[:6])


def print_kinds(rows: Iterable[Row]) -> None:
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row.kind].append(row)
    for kind, own in sorted(kinds.items(), key=lambda item: -sum(r.measured for r in item[1])):
        print(
            line(f"  {kind}", len(own), sum(r.predicted for r in own), sum(r.measured for r in own))
        )


def line(name: str, count: int, predicted: float, found: float) -> str:
    ratio = predicted / found if found else math.inf
    return f"{name:38s} {count:6d} {1e3 * predicted:12.3f} {1e3 * found:12.3f} {ratio:6.2f}"


def print_case(found: dict[str, Any], most: int) -> None:
    rows: list[Row] = found["rows"]
    predicted = found["predicted_ms"]
    print(
        f"{found['case']}: predicted {predicted:.2f} ms, measured {found['median_ms']:.2f} (median), "
        f"{found['least_ms']:.2f} (least), {found['kernels_ms']:.2f} (kernels' least); "
        f"ratio {predicted / found['median_ms']:.2f}, {predicted / found['least_ms']:.2f}, "
        f"{predicted / found['kernels_ms']:.2f}"
    )
    print_kinds(rows)
    for row in sorted(rows, key=lambda r: -abs(r.predicted - r.measured))[:most]:
        parts = f"compute {1e3 * row.compute:.3f}, memory {1e3 * row.memory:.3f}"
        print(
            line(f"    {row.name[:34]}", 1, row.predicted, row.measured), row.kind, parts, row.sizes
        )
    sys.stdout.flush()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--steps", type=int, default=30)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--machine", type=Path, help="a machine description")
    which.add_argument("--calibrate", action="store_true", help="measure the machine first")
    parser.add_argument("--own-time", action="store_true", help="kernels by their threads' clock")
    parser.add_argument("--most", type=int, default=0, help="kernels of each case to be listed")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def described(options: argparse.Namespace) -> MachineDescription:
    if options.calibrate:
        return measure_machine("this machine", CalibrationOptions())
    if options.machine:
        return read_machine(options.machine.read_bytes(), str(options.machine))
    return machine_here()


def main() -> int:
    options = parsed()
    print(json.dumps(describe_environment()))
    machine = described(options)
    print(f"{machine}\n{HEADER}")
    every: list[Row] = []
    cases = []
    for folder in sorted(options.cases.glob("*/case.json")):
        if re.search(options.only, folder.parent.name):
            found = measured(folder.parent, machine, options.steps)
            print_case(found, options.most)
            every += found["rows"]
            cases.append(found)
    print("all cases")
    print_kinds(every)
    for name in ("median_ms", "least_ms", "kernels_ms"):
        ratios = [found["predicted_ms"] / found[name] for found in cases]
        far = sum(abs(ratio - 1) > 0.2 for ratio in ratios)
        print(
            f"predicted over {name[:-3]}: geometric mean {geometric_mean(ratios):.2f}, from "
            f"{min(ratios):.2f} to {max(ratios):.2f}, {far} of {len(ratios)} more than 20 % off"
        )
    if options.json:
        plain = [{**found, "rows": [vars(row) for row in found["rows"]]} for found in cases]
        options.json.write_text(json.dumps({"machine": str(machine), "cases": plain}, indent=1))
    return 0 if cases else 1


if __name__ == "__main__":
    sys.exit(main())
