"""Compare programs without and with fusion: thunks, bytes that they read and write, memory, compile time, step time.

    python -m benchmarks.fusion_report CASES [--only REGEX] [--steps 0] [--rounds 3] [--machine NAME] [--json FILE]

CASES is a folder of cases (module.hlo, case.json). Each row shows, without fusion and with it: the thunks of the
program; the bytes of one device's arrays that its thunks read and write, of a broadcast or strided array the bytes that
are touched; the bytes of a device's memory; and the CPU seconds of compilation. Each computation counts once, a loop's
body as if it ran once. With --steps a row also shows the milliseconds of a step and the CPU milliseconds of all devices
in a step, which say more on a machine that others use, too. A step time is the median of that many steps, in the better
of --rounds rounds, in which the two programs take turns. The exit code is 1 where memory rises.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.timing.turns import geometric_mean
from launch.data.inputs import SeededInputs
from launch.execution import time_steps
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.source import load_module
from runtime.buffers.types import ArrayView
from runtime.executable import Executable
from runtime.program.thunks import Thunk
from spmd.hlo import HloModule
from spmd.machine.named import machine_named

WARM_UP = 2
HEADER = (
    f"{'case':27s} {'thunks':>11s} {'bytes moved':>23s} {'ratio':>6s} {'memory':>7s} "
    f"{'compile s':>13s} {'step ms':>17s} {'ratio':>6s} {'CPU ms of a step':>17s} {'ratio':>6s}"
)


@dataclass(frozen=True)
class Figures:
    """Figures of one program; ``step_ms`` and ``cpu_ms`` are 0 where no steps were asked for."""

    thunks: int
    moved: int
    memory: int
    compile_s: float
    step_ms: float = 0.0
    cpu_ms: float = 0.0


@dataclass(frozen=True)
class Row:
    name: str
    plain: Figures
    fused: Figures

    def __str__(self) -> str:
        a, b = self.plain, self.fused
        step = f"{a.step_ms:8.2f} {b.step_ms:8.2f} {_ratio(b.step_ms, a.step_ms):6.3f}"
        step += f" {a.cpu_ms:8.2f} {b.cpu_ms:8.2f} {_ratio(b.cpu_ms, a.cpu_ms):6.3f}"
        return (
            f"{self.name:27s} {a.thunks:5d} {b.thunks:5d} {a.moved:11d} {b.moved:11d} "
            f"{_ratio(b.moved, a.moved):6.3f} {_ratio(b.memory, a.memory):7.4f} "
            f"{a.compile_s:6.2f} {b.compile_s:6.2f} {step if a.step_ms else ''}"
        )


def _ratio(new: float, old: float) -> float:
    return new / old if old else 1.0


def walk(thunk: Thunk) -> Iterator[Thunk]:
    """Yield the thunks that contain no other thunks."""
    inside = list(thunk.nested())
    if not inside:
        yield thunk
    for one in inside:
        yield from walk(one)


def moved_bytes(thunk: Thunk) -> int:
    """Return the bytes that a thunk reads and writes, each place once for reading and once for writing."""
    uses = dict.fromkeys((use.kind, use.array) for use in thunk.buffer_uses())
    return sum(_touched(place) for _, place in uses)


def _touched(place: ArrayView) -> int:
    sizes = [n for n, step in zip(place.view.dims, place.view.strides, strict=True) if step]
    return math.prod(sizes) * place.view.element_type.byte_size


def compiled(module: HloModule, devices: int, options: CompileOptions) -> tuple[Executable, float]:
    start = time.process_time()
    executable = compile_module(module, devices, options)
    return executable, time.process_time() - start


def step_times(executables: list[Executable], steps: int, rounds: int) -> list[tuple[float, float]]:
    """Return for each executable the least of the rounds' medians and of their CPU times per step, in milliseconds."""
    if not steps:
        return [(0.0, 0.0)] * len(executables)
    medians: list[list[float]] = [[] for _ in executables]
    cpu: list[list[float]] = [[] for _ in executables]
    for _ in range(rounds):
        for number, executable in enumerate(executables):
            state = executable.put(SeededInputs(0, [b.shape for b in executable.inputs]))
            start = time.process_time()
            seconds = time_steps(executable, state, WARM_UP + steps)
            cpu[number].append(1e3 * (time.process_time() - start) / (WARM_UP + steps))
            medians[number].append(1e3 * statistics.median(seconds[WARM_UP:]))
    return [(min(m), min(c)) for m, c in zip(medians, cpu, strict=True)]


def measure(case: Path, options: argparse.Namespace) -> Row:
    about = json.loads((case / "case.json").read_text(encoding="utf-8"))
    devices = about["num_partitions"] * about.get("num_replicas", 1)
    module = load_module(str(case / "module.hlo"))
    machine = machine_named(options.machine) if options.machine else machine_named()
    made = [
        compiled(module, devices, CompileOptions(fusion=fusion, machine=machine))
        for fusion in (False, True)
    ]
    times = step_times([executable for executable, _ in made], options.steps, options.rounds)
    figures = []
    for (executable, seconds), step in zip(made, times, strict=True):
        thunks = list(walk(executable.program.thunks))
        memory = sum(a.size for a in executable.program.assignment.allocations)
        moved = sum(map(moved_bytes, thunks))
        figures.append(Figures(len(thunks), moved, memory, seconds, *step))
    return Row(case.name, *figures)


def summary(rows: list[Row]) -> str:
    parts = [
        f"{name} {geometric_mean([_ratio(getattr(r.fused, field), getattr(r.plain, field)) for r in rows]):.3f}"
        for name, field in (
            ("thunks", "thunks"),
            ("bytes moved", "moved"),
            ("memory", "memory"),
            ("compile", "compile_s"),
            ("step", "step_ms"),
            ("CPU of a step", "cpu_ms"),
        )
        if field not in ("step_ms", "cpu_ms") or all(r.plain.step_ms for r in rows)
    ]
    return f"geometric means over {len(rows)} cases, with fusion over without: {', '.join(parts)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names match")
    parser.add_argument("--steps", type=int, default=0, help="steps to time in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--machine", default="", help="a shipped machine description")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = []
    print(HEADER)
    for case in sorted(path.parent for path in options.cases.glob("*/case.json")):
        if re.search(options.only, case.name):
            rows.append(measure(case, options))
            print(rows[-1], flush=True)
    print(summary(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 1 if any(row.fused.memory > row.plain.memory for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
