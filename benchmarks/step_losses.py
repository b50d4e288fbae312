"""Report where a step loses time: each kernel's measured time beside the least it could take, biggest losses first.

    python -m benchmarks.step_losses MODULE [--devices N] [--steps 10] [--top 30] [--each] [--least] [--own-time]
        [--no-fusion]
    python -m launch.mpirun -n N -- -m benchmarks.step_losses MODULE

Times are the timeline's (`spmd run --profile`): all runs of a thunk in a step, as the median over steps and the mean
over devices. Limits are those of benchmarks/timing/limit.py at rates that are measured here, after the steps: "limit"
with operands that have just been touched, and "as lying" with operands as far away as they are in the step. Thunks of
equal shapes share a line that shows their number, unless --each gives each thunk its own. Collectives take time in
their starts and in waits; what exceeds the wire's limit is mostly waiting for a device that is late. With --least the
least step counts, which says more on a machine that others use; there --own-time uses the device threads' own CPU
clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import benchmarks.timing.own_clock  # noqa: F401 - before native code asks for a clock
from benchmarks.timing.described import described
from benchmarks.timing.limit import Limits
from benchmarks.timing.rates import Rates
from benchmarks.timing.reuse import byte_seconds
from launch.cli.arguments import add_program_arguments, positive
from launch.cli.bench import DEVIATION
from launch.cli.program import dispatch, program_here
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.on_ranks import program_on_ranks
from launch.data.inputs import SeededInputs
from launch.execution import time_steps
from launch.report.trace import collect_trace
from runtime.device_program import RETAINED_STEPS
from runtime.executable import Executable
from spmd.hlo import Opcode

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator

WARM_UP = 3
#: Thunks that contain others: their time is that of what they contain.
_HOLDERS = frozenset({"ThunkSequence", "While", "Conditional", "Call"})


@dataclass(frozen=True, slots=True)
class Line:
    """All thunks that ``what`` describes, with microseconds of one device's step."""

    what: str
    count: int
    time: float
    limit: float
    #: The limit with operands as far away as they are in the step.
    lying: float

    @property
    def loss(self) -> float:
        return self.time - self.limit

    @staticmethod
    def of(what: str, each: Sequence[tuple[float, float, float]]) -> Line:
        time, limit, lying = map(sum, zip(*each, strict=True))
        return Line(what, len(each), time, limit, lying)

    def __str__(self) -> str:
        over = [f"{self.time / x:8.2f}" if x else " " * 8 for x in (self.limit, self.lying)]
        return (
            f"{self.time:8.0f} {self.limit:8.0f} {self.loss:8.0f} {over[0]} {self.lying:8.0f} "
            f"{over[1]} {self.count:5d}  {self.what}"
        )


@dataclass
class Spent:
    """Microseconds by instruction and device, of each step that was recorded, and how often the instruction ran in one.

    Thunks that lay out an operand for an instruction have its name; its own thunk is the last one.
    """

    of_steps: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[str, int] = field(default_factory=dict)

    def add(self, trace: dict[str, Any]) -> None:
        """Add the steps of one more trace."""
        here: dict[tuple[str, int, int], list[tuple[str, float]]] = defaultdict(list)
        for event in trace["traceEvents"]:
            if event["ph"] == "X" and event["tid"] == 0 and event["cat"] not in _HOLDERS:
                thunk = event["cat"], event["dur"]
                here[event["name"], event["pid"], event["args"]["step"]].append(thunk)
        for (name, device, _), thunks in here.items():
            self.of_steps[name, device].append(sum(duration for _, duration in thunks))
            self.runs[name] = sum(kind == thunks[-1][0] for kind, _ in thunks)

    def times(self, typical: Callable[[Iterable[float]], float]) -> dict[str, float]:
        """Return the microseconds of each instruction in a step, all its runs.

        They are ``typical`` of the steps, and the mean over devices.
        """
        devices = {device for _, device in self.of_steps}
        times: dict[str, float] = defaultdict(float)
        for (name, _), steps in self.of_steps.items():
            times[name] += typical(steps) / len(devices)
        return times


def lines_of(
    executable: Executable, times: dict[str, float], runs: dict[str, int], *, each: bool
) -> list[Line]:
    """Return the lines, the biggest loss first, and at the end the sum of all."""
    module, rates = executable.module, Rates.measured()
    devices = module.num_partitions * module.replica_count
    near = Limits(rates, devices)
    lying = Limits(rates, devices, byte_seconds(executable.program, module, rates))
    instructions = {x.name: x for x in module.all_instructions()}
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for name, time in times.items():
        x = instructions.get(name)
        limits = (0.0, 0.0)
        if x is None:
            what = f"{name}, not an instruction"
        elif x.opcode is Opcode.WHILE:
            what = f"copies of the state of {name}"
        else:
            what = described(x)
            each_run = 1e6 * runs[name]
            limits = each_run * near.of(x).seconds, each_run * lying.of(x).seconds
        found[f"{name}: {what}" if each else what].append((time, *limits))
    lines = [Line.of(what, own) for what, own in found.items()]
    every = Line.of("all", [one for own in found.values() for one in own])
    return [*sorted(lines, key=lambda line: -line.loss), every]


HEADER = (
    f"{'us':>8s} {'limit':>8s} {'loss':>8s} {'of limit':>8s} {'as lying':>8s} {'of it':>8s} "
    f"{'count':>5s}  kernel"
)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_program_arguments(parser)
    parser.add_argument("--steps", type=positive, default=RETAINED_STEPS)
    parser.add_argument("--top", type=positive, default=30)
    parser.add_argument("--each", action="store_true", help="a line for each thunk")
    parser.add_argument("--least", action="store_true", help="of the steps, not the median")
    parser.add_argument("--own-time", action="store_true", help="by the threads' own CPU clock")
    return parser.parse_args()


def run_here(options: argparse.Namespace) -> int:
    executable = program_here(options).executable
    executable.record = True
    report(options, executable, *measured(options, executable))
    return 0


def run_as_rank(options: argparse.Namespace, world: MpiCommunicator) -> int:
    def alike() -> dict[str, str]:
        return {"options": str((compile_options(options), options.devices, options.steps))}

    executable = program_on_ranks(options, world, alike, record=True).executable
    spent, seconds = measured(options, executable)
    if world.rank == 0:
        report(options, executable, spent, seconds)
    world.barrier()
    return 0


def measured(options: argparse.Namespace, executable: Executable) -> tuple[Spent, list[float]]:
    """Run the steps; return what thunks take, on the process of device 0, and the steps' seconds.

    The call is collective under MPI.
    """
    shapes = [boundary.shape for boundary in executable.inputs]
    spent, seconds = Spent(), []
    time_steps(executable, executable.put(SeededInputs(0, shapes, DEVIATION)), WARM_UP)
    for _ in range(0, options.steps, RETAINED_STEPS):
        state = executable.put(SeededInputs(0, shapes, DEVIATION))
        seconds += time_steps(executable, state, RETAINED_STEPS)
        trace = collect_trace(executable)
        if trace is not None:
            spent.add(trace)
    return spent, seconds


def report(
    options: argparse.Namespace, executable: Executable, spent: Spent, seconds: list[float]
) -> None:
    times = spent.times(min if options.least else statistics.median)
    print(f"{1e3 * statistics.median(seconds):.2f} ms a step, least {1e3 * min(seconds):.2f}")
    *lines, every = lines_of(executable, times, spent.runs, each=options.each)
    print(HEADER)
    for line in (*lines[: options.top], every):
        print(line)


def main() -> int:
    return dispatch(parsed(), run_here, run_as_rank)


if __name__ == "__main__":
    sys.exit(main())
