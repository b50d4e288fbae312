"""Report predicted over measured step times, with rates and steps that are timed in turns in one run.

    python -m benchmarks.simulation.prediction_report CASES [--only REGEX] [--rounds 10] [--minutes 60] [--steps 10]
    [--mpirun]
        [--json FILE] [--machine FILE] [--kernels [--most 0] [--own-time]]

A machine's speed changes while it is measured: neighbours come and go, and a tile unit that another guest uses does
half of its products for minutes. A prediction says nothing about such a change, so that rates and steps must be of
the same time. Each round takes one case after the other: it first times what `spmd calibrate` times, as far as the
case's kernels need it (products by type, convolutions, memory, operations, dispatch, exchange), then some steps of
the case. The shapes are `spmd calibrate`'s own: no kernel of a case is timed for a rate, and no number is fitted to a
case. All cases are compiled before the first round. The report shows two ratios:

best    the prediction by each rate's best round of the run, over the least step of the run. Disturbances only delay,
        so both are what the machine does while it is left alone, whenever that was. One machine description for all
        cases.
round   the prediction by the medians of what was timed in one round, on the slower core, over the median of that
        round's steps; of these the median over all rounds, and the middle half of them. What disturbs for longer than
        a round meets both sides, and what comes and goes within one meets both as often: a long kernel is seldom left
        alone from its beginning to its end, so that the least of short ones would be too little for it.

With --mpirun steps are those of `spmd bench` as MPI ranks, a job for each round and case; rates are this process's,
while no rank runs. --kernels compares the prediction by the best rates with kernels' times, by kind of kernel; a time
is the least of a thunk's over all steps and devices. --most lists that many single kernels of each case, those that are
farthest off. With --own-time the times are the device threads' own CPU time, for a machine where others run: the
waiting of a collective then counts as its work, and waiting in the operating system does not count.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import benchmarks.timing.own_clock  # noqa: F401 - before native code asks for a clock
import spmd
from benchmarks.timing.kernel_times import (
    Least,
    Row,
    least_of,
    least_of_all,
    print_kinds,
    print_rows,
    rows_of,
)
from benchmarks.timing.needed_rates import needed_by
from benchmarks.timing.program import run_json
from benchmarks.timing.turns import geometric_mean
from launch.cache.cache_folder import keep_objects
from launch.calibration.machine import CalibrationOptions, described
from launch.calibration.probes import Probe, Round, Rounds, least, typical
from launch.calibration.timing import cores
from launch.cli.bench import DEVIATION, WARM_UP
from launch.data.inputs import SeededInputs, read_inputs
from launch.execution import time_steps
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.report.environment import describe_environment
from launch.target.calibrated import machine_here
from runtime.cpu.libraries.blas import BlasThreads
from runtime.cpu.prediction.step import predicted_step
from runtime.executable import Executable
from spmd.machine.description import MachineDescription
from spmd.machine.reader import write_machine

#: How far a predicted step may be from a measured one.
WANTED = 0.2
HEADER = (
    f"{'case':22s} {'predicted ms':>12s} {'least ms':>9s} {'best':>6s}   {'round':>6s} "
    f"{'middle half':>12s}   {'median ms':>9s}"
)


@dataclass
class Case:
    """A compiled program, and what was timed in each round: steps, rates, and kernels where devices record them."""

    folder: Path
    executable: Executable
    options: CalibrationOptions
    steps: list[list[float]] = field(default_factory=list)
    rates: list[Round] = field(default_factory=list)
    kernels: list[Least] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the name of the folder, and of the zoo's program, whose folders are named by numbers of devices."""
        here = self.folder
        return f"{here.parent.name}_{here.name}" if here.name.isdigit() else here.name

    @property
    def probes(self) -> tuple[Probe, ...]:
        return tuple(probe for family in self.options.families() for probe in family.probes)

    def predicted(self, machine: MachineDescription) -> float:
        program, module = self.executable.program, self.executable.module
        return predicted_step(program, module, machine, cores()).seconds

    def machines(self, core: int) -> list[MachineDescription]:
        """Return descriptions of core number ``core`` by the medians of each round."""
        return [described("one round", self.options, typical(rates, core)) for rates in self.rates]

    def ratios(self) -> list[float]:
        """Return predicted over measured seconds of each round.

        Devices wait for each other at each collective, so that the slower core determines the step.
        """
        by_core = [
            [self.predicted(machine) for machine in self.machines(core)] for core in range(cores())
        ]
        return [
            max(predicted) / statistics.median(steps)
            for *predicted, steps in zip(*by_core, self.steps, strict=True)
        ]

    def rows(self, machine: MachineDescription) -> list[Row]:
        return rows_of(self.executable, machine, least_of_all(self.kernels))

    def rows_of_rounds(self) -> list[list[Row]]:
        return [
            rows_of(self.executable, machine, found)
            for machine, found in zip(self.machines(0), self.kernels, strict=True)
        ]


def compiled(folder: Path, *, record: bool) -> Case:
    """Compile the program of ``folder``, a case of the corpus or of `benchmarks.zoo --work`."""
    about = json.loads((folder / "case.json").read_text())
    devices = about.get("num_partitions") or about["devices"]
    options = CompileOptions(machine=machine_here())
    executable = compile_module(spmd.load(folder / "module.hlo"), devices, options)
    executable.record = record
    return Case(folder, executable, needed_by([executable.program]))


def steps_here(case: Case, count: int) -> list[float]:
    """Return the seconds of ``count`` steps in this process.

    Where devices record, the kernels' times are stored in ``case``.
    """
    executable, file = case.executable, case.folder / "inputs.npz"
    shapes = [argument.shape for argument in executable.inputs]
    state = executable.put(
        read_inputs(file, shapes) if file.exists() else SeededInputs(0, shapes, DEVIATION)
    )
    seconds = time_steps(executable, state, WARM_UP + count)[WARM_UP:]
    if executable.record:
        case.kernels.append(least_of(executable))
    return seconds


def steps_of_ranks(case: Case, count: int) -> list[float]:
    """Run steps as MPI ranks and return the least and, twice, the median time that `spmd bench` prints."""
    ranks = str(case.executable.num_devices)
    bench = ["launch", "bench", str(case.folder / "module.hlo"), "--json", "--repeat", str(count)]
    found = run_json([sys.executable, "-m", "launch.mpirun", "-n", ranks, "--", "-m", *bench])
    step = found["step_ms"]
    return [1e-3 * step["min"], 1e-3 * step["median"], 1e-3 * step["median"]]


def timed(cases: Sequence[Case], options: argparse.Namespace) -> None:
    """Time the cases round after round until the minutes are over; the first round always runs."""
    rounds, end = Rounds(), time.monotonic() + 60 * options.minutes
    for number in range(options.rounds):
        if number and time.monotonic() > end:
            break
        for case in cases:
            with BlasThreads(1):
                case.rates.append(rounds.round(case.probes))
            run = steps_of_ranks if options.mpirun else steps_here
            case.steps.append(run(case, options.steps))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)


def figures(case: Case, machine: MachineDescription) -> dict[str, Any]:
    every = [seconds for steps in case.steps for seconds in steps]
    predicted, ratios = case.predicted(machine), sorted(case.ratios())
    return {
        "case": case.name,
        "predicted_ms": 1e3 * predicted,
        "least_ms": 1e3 * min(every),
        "median_ms": 1e3 * statistics.median(every),
        "best": predicted / min(every),
        "round": statistics.median(ratios),
        "rounds": ratios,
    }


def line_of(found: dict[str, Any]) -> str:
    ratios = found["rounds"]
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return (
        f"{found['case']:22s} {found['predicted_ms']:12.2f} {found['least_ms']:9.2f} "
        f"{found['best']:6.2f}   {found['round']:6.2f} {low:6.2f}{high:6.2f}   "
        f"{found['median_ms']:9.2f}"
    )


def summary(rows: Sequence[dict[str, Any]]) -> Iterable[str]:
    for name in ("best", "round"):
        ratios = [row[name] for row in rows]
        far = [f"{row['case']} {row[name]:.2f}" for row in rows if abs(row[name] - 1) > WANTED]
        yield (
            f"{name}: geometric mean {geometric_mean(ratios):.2f}, from {min(ratios):.2f} to "
            f"{max(ratios):.2f}; more than {WANTED:.0%} off: {', '.join(far) or 'none'}"
        )


def print_kernels(
    cases: Sequence[Case], machine: MachineDescription, most: int
) -> dict[str, list[Row]]:
    """Print kernels by kind, of each case and of all cases; return the rows of each case."""
    rows = {case.name: case.rows(machine) for case in cases}
    rounds = {case.name: case.rows_of_rounds() for case in cases}
    for name, own in rows.items():
        predicted, measured = sum(r.predicted for r in own), sum(r.measured for r in own)
        print(f"{name}: kernels predicted over measured {predicted / measured:.2f}")
        print_kinds(own, rounds[name])
        print_rows(own, most)
    print("all cases")
    every = zip(*rounds.values(), strict=True)
    print_kinds(
        [row for own in rows.values() for row in own],
        [[row for own in one for row in own] for one in every],
    )
    return rows


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases", type=Path, help="a corpus, or the folder of `benchmarks.zoo --work`"
    )
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no round after so many")
    parser.add_argument("--steps", type=int, default=10, help="of each round and case")
    parser.add_argument("--mpirun", action="store_true", help="steps of MPI ranks")
    parser.add_argument("--kernels", action="store_true", help="kernels by kind, too")
    parser.add_argument("--most", type=int, default=0, help="kernels of each case to be listed")
    parser.add_argument("--own-time", action="store_true", help="kernels by their threads' clock")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--machine", type=Path, help="write the description of best rates")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    keep_objects()
    environment = describe_environment()
    print(json.dumps(environment))
    cases = [
        compiled(folder.parent, record=options.kernels)
        for folder in sorted(
            [*options.cases.glob("*/case.json"), *options.cases.glob("*/*/case.json")]
        )
        if re.search(options.only, str(folder.parent.relative_to(options.cases)))
    ]
    if not cases:
        return 1
    timed(cases, options)
    every = needed_by([case.executable.program for case in cases])
    rates = least([one for case in cases for one in case.rates])
    machine = described(f"{cores()} cores of {environment['cpu']}", every, rates)
    if options.machine:
        options.machine.write_text(write_machine(machine), encoding="utf-8")
    print(HEADER)
    rows = [figures(case, machine) for case in cases]
    for row in rows:
        print(line_of(row))
    for line in summary(rows):
        print(line)
    kernels = print_kernels(cases, machine, options.most) if options.kernels else {}
    if options.json:
        plain = {name: [vars(row) for row in own] for name, own in kernels.items()}
        report = {"environment": environment, "cases": rows, "kernels": plain}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
