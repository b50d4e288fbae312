"""Report simulated over measured steps: the schedule that ran is simulated with recorded and with predicted durations.

    python -m benchmarks.simulation.report CASES [--only REGEX] [--steps 9] [--mpirun] [--machine FILE] [--json FILE]

Each case (a folder with module.hlo and case.json) is compiled and runs ``--steps`` steps while its devices record
when their thunks begin and end. There are two ratios:

traced      each step simulated with its own durations (collectives without the waiting for late peers, so that the
            simulation has to find it again), over the step: the median of all steps, and the one farthest off; and
            what part of the step its trace spans
predicted   the step simulated with what the cost model predicts of each instruction, over the least step

A step is what the caller waits for, from before its devices begin until all have ended. With --mpirun devices are MPI
ranks, and a step is what its trace spans.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spmd
from collectives.cost.estimator import CostError
from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.simulate import SimulationOptions
from launch.calibration.timing import cores
from launch.cli.bench import DEVIATION
from launch.data.inputs import SeededInputs
from launch.execution import time_steps
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.report.simulation_durations import TimedStep, simulate_timed, traced_steps
from launch.report.simulation_predicted import predicted_durations
from launch.report.trace import collect_trace
from launch.target.calibrated import machine_here
from runtime.executable import Executable
from spmd.json_fields import JsonFields
from spmd.machine.description import MachineDescription
from spmd.machine.reader import read_machine

WANTED_TRACED, WANTED_PREDICTED = 0.05, 0.20
HEADER = f"{'case':22s} {'median ms':>9s} {'traced':>7s} {'farthest':>8s}   {'least ms':>9s} {'predicted':>9s}"


@dataclass(frozen=True)
class Row:
    """Figures of one case.

    ``steps`` are measured seconds, ``spans`` the parts of them that traces span, ``traced`` the steps simulated with
    each one's durations.
    """

    name: str
    steps: tuple[float, ...]
    spans: tuple[float, ...]
    traced: tuple[float, ...]
    predicted: float

    @property
    def ratios(self) -> list[float]:
        return [found / step for found, step in zip(self.traced, self.steps, strict=True)]

    @property
    def farthest(self) -> float:
        return max(self.ratios, key=lambda ratio: abs(ratio - 1))

    @property
    def predicted_ratio(self) -> float:
        return self.predicted / min(self.steps)

    def text(self) -> str:
        return (
            f"{self.name:22s} {1e3 * statistics.median(self.steps):9.2f} "
            f"{statistics.median(self.ratios):7.3f} {self.farthest:8.3f} "
            f"{statistics.median(a / b for a, b in zip(self.spans, self.steps, strict=True)):6.3f}   "
            f"{1e3 * min(self.steps):9.2f} {self.predicted_ratio:9.3f}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.name,
            "step_s": list(self.steps),
            "traced": self.ratios,
            "predicted": self.predicted_ratio,
        }


def measured(folder: Path, options: argparse.Namespace) -> Row:
    executable = compile_module(
        spmd.load(folder / "module.hlo"), _devices(folder), CompileOptions(machine=machine_here())
    )
    machine = options.machine or machine_here()
    run = _of_ranks(folder, options) if options.mpirun else _here(executable, options.steps)
    trace, seconds = run
    steps = traced_steps(JsonFields(trace, folder.name, CostError), executable.module)
    seconds = seconds[-len(steps) :] if seconds else [step.seconds or 0.0 for step in steps]
    predicted = predicted_durations(executable, machine, cores())
    return Row(
        folder.name,
        tuple(seconds),
        tuple(step.seconds or 0.0 for step in steps),
        tuple(_simulated(executable, step, machine) for step in steps),
        _simulated(executable, TimedStep((predicted,)), machine),
    )


def _here(executable: Executable, steps: int) -> tuple[dict[str, Any], list[float]]:
    """Run steps on devices of this process; return the trace of the last ones, and the seconds of all."""
    executable.record = True
    shapes = [boundary.shape for boundary in executable.inputs]
    state = executable.put(SeededInputs(0, shapes, DEVIATION))
    seconds = time_steps(executable, state, steps + 1)
    trace = collect_trace(executable)
    assert trace is not None
    return trace, seconds


def _of_ranks(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Any], list[float]]:
    """Run steps as MPI ranks; return their trace, and no seconds, which the trace alone has."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "trace.json"
        job = ["run", str(folder / "module.hlo"), "--seed", "0", "--steps", str(options.steps + 1)]
        launch = [sys.executable, "-m", "launch", "launch", "-n", str(_devices(folder)), "--", *job]
        subprocess.run([*launch, "--profile", str(file)], check=True, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(file.read_text())
        return found, []


def _devices(folder: Path) -> int:
    about = json.loads((folder / "case.json").read_text())
    return int(about["num_partitions"]) * int(about["num_replicas"])


def _simulated(executable: Executable, step: TimedStep, machine: MachineDescription) -> float:
    described = RooflineEstimator.of(executable.module, machine)
    return simulate_timed(executable.module, step, described, SimulationOptions()).seconds


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="perf_")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--mpirun", action="store_true")
    parser.add_argument("--machine", type=lambda f: read_machine(Path(f).read_bytes(), f))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    folders = sorted(f.parent for f in options.cases.glob("*/case.json"))
    rows = []
    print(HEADER, flush=True)
    for folder in folders:
        if re.search(options.only, folder.name):
            rows.append(measured(folder, options))
            print(rows[-1].text(), flush=True)
    if options.json:
        options.json.write_text(json.dumps([row.as_json() for row in rows]))
    near = sum(abs(statistics.median(row.ratios) - 1) <= WANTED_TRACED for row in rows)
    close = sum(abs(row.predicted_ratio - 1) <= WANTED_PREDICTED for row in rows)
    print(
        f"traced within {WANTED_TRACED:.0%}: {near} of {len(rows)}; "
        f"predicted within {WANTED_PREDICTED:.0%}: {close} of {len(rows)}"
    )
    return 0 if near == close == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
