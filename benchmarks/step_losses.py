"""Where a step loses time: every kernel's measured time beside the least it could take, the biggest losses first.

    python -m benchmarks.step_losses MODULE [--devices N] [--steps 10] [--top 30] [--each] [--least] [--own-time]
        [--no-fusion]
    python -m launch.mpirun -n N -- -m benchmarks.step_losses MODULE

Times are the timeline's (`spmd run --profile`): of each thunk all its runs in a step, the median over steps, the mean
over devices. Limits are those of benchmarks/timing/limit.py at rates that are measured here, after the steps. Thunks of
equal shapes are one line, with their number, unless --each. Collectives take time in their starts and in waits, beside
the wire's limit: what goes beyond it is mostly waiting for a device that is late. With --least the least step counts,
which says more on a machine that others use; there --own-time takes the device threads' own CPU clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import benchmarks.timing.own_clock  # noqa: F401 - before native code asks for a clock
from benchmarks.timing.limit import instruction_limit
from benchmarks.timing.rates import Rates
from launch.cli.bench import DEVIATION
from launch.cli.module_argument import compile_options, positive
from launch.cli.program import add_program_arguments, dispatch, program_here, program_on_ranks
from launch.execution import time_steps
from launch.inputs import SeededInputs
from launch.report.trace import collect_trace
from runtime.executable import Executable
from runtime.timeline.recorder import KEPT_STEPS
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from collectives.communicator.mpi import MpiCommunicator

WARM_UP = 3
#: Thunks that contain others: their time is that of what they contain.
_HOLDERS = frozenset({"ThunkSequence", "While", "Conditional", "Call"})


@dataclass(frozen=True, slots=True)
class Line:
    """Of all thunks that ``what`` describes, microseconds of one device's step."""

    what: str
    count: int
    time: float
    limit: float

    @property
    def loss(self) -> float:
        return self.time - self.limit


@dataclass
class Spent:
    """Microseconds by thunk and device, of each step that was recorded, and how often the thunk ran in one."""

    of_steps: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[str, int] = field(default_factory=dict)

    def add(self, trace: dict[str, Any]) -> None:
        """The steps of one more trace."""
        here: dict[tuple[str, int, int], list[float]] = defaultdict(list)
        for event in trace["traceEvents"]:
            if event["ph"] == "X" and event["tid"] == 0 and event["cat"] not in _HOLDERS:
                here[event["name"], event["pid"], event["args"]["step"]].append(event["dur"])
        for (name, device, _), durations in here.items():
            self.of_steps[name, device].append(sum(durations))
            self.runs[name] = len(durations)

    def times(self, typical: Callable[[Iterable[float]], float]) -> dict[str, float]:
        """Of each thunk in a step: all its runs, ``typical`` of the steps, the mean over devices."""
        devices = {device for _, device in self.of_steps}
        times: dict[str, float] = defaultdict(float)
        for (name, _), steps in self.of_steps.items():
            times[name] += typical(steps) / len(devices)
        return times


def described(x: HloInstruction) -> str:
    """What it computes, by shapes, so that equal kernels of several layers read alike."""
    operands = ", ".join(_shape(o) for o in x.operands[:4])
    more = ", .." if len(x.operands) > 4 else ""
    inside = ""
    if x.opcode is Opcode.FUSION:
        within = x.called_computations[0].instructions
        inside = "+".join(dict.fromkeys(i.opcode.value for i in within if _computes(i)))
        inside = f" [{inside[:60]}]"
    return f"{x.opcode.value}{inside} ({operands}{more}) -> {_shape(x)}"


def _shape(x: HloInstruction) -> str:
    shape = x.shape
    return str(shape.without_layout() if isinstance(shape, ArrayShape) else shape)


def _computes(x: HloInstruction) -> bool:
    return x.opcode not in {
        Opcode.PARAMETER,
        Opcode.TUPLE,
        Opcode.BROADCAST,
        Opcode.CONSTANT,
        Opcode.BITCAST,
        Opcode.RESHAPE,
    }


def lines_of(
    module: HloModule, times: dict[str, float], runs: dict[str, int], rates: Rates, *, each: bool
) -> Iterator[Line]:
    """The biggest loss first."""
    devices = module.num_partitions * module.replica_count
    instructions = {x.name: x for x in module.all_instructions()}
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, time in times.items():
        x = instructions.get(name)
        if x is None:
            what, limit = f"{name}, not an instruction", 0.0
        elif x.opcode is Opcode.WHILE:
            what, limit = f"copies of the state of {name}", 0.0
        else:
            what = described(x)
            limit = runs[name] * 1e6 * instruction_limit(x, rates, devices).seconds
        found[f"{name}: {what}" if each else what].append((time, limit))
    lines = [
        Line(what, len(each_of), sum(t for t, _ in each_of), sum(limit for _, limit in each_of))
        for what, each_of in found.items()
    ]
    return iter(sorted(lines, key=lambda line: -line.loss))


def table(lines: Iterable[Line], top: int) -> list[str]:
    every = list(lines)
    rows = [f"{'us':>8s} {'limit':>8s} {'loss':>8s} {'of limit':>8s} {'count':>5s}  kernel"]
    total = Line(
        "all",
        sum(x.count for x in every),
        *map(sum, zip(*((x.time, x.limit) for x in every), strict=True)),
    )
    for x in [*every[:top], total]:
        over = f"{x.time / x.limit:8.2f}" if x.limit else " " * 8
        rows.append(f"{x.time:8.0f} {x.limit:8.0f} {x.loss:8.0f} {over} {x.count:5d}  {x.what}")
    return rows


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_program_arguments(parser)
    parser.add_argument("--steps", type=positive, default=KEPT_STEPS)
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
    """What thunks take, on the process of device 0, and the steps' seconds. Collective under MPI."""
    shapes = [boundary.shape for boundary in executable.inputs]
    spent, seconds = Spent(), []
    time_steps(executable, executable.put(SeededInputs(0, shapes, DEVIATION)), WARM_UP)
    for _ in range(0, options.steps, KEPT_STEPS):
        state = executable.put(SeededInputs(0, shapes, DEVIATION))
        seconds += time_steps(executable, state, KEPT_STEPS)
        trace = collect_trace(executable)
        if trace is not None:
            spent.add(trace)
    return spent, seconds


def report(
    options: argparse.Namespace, executable: Executable, spent: Spent, seconds: list[float]
) -> None:
    times = spent.times(min if options.least else statistics.median)
    print(f"{1e3 * statistics.median(seconds):.2f} ms a step, least {1e3 * min(seconds):.2f}")
    rates = Rates.measured()
    lines = lines_of(executable.module, times, spent.runs, rates, each=options.each)
    print("\n".join(table(lines, options.top)))


def main() -> int:
    return dispatch(parsed(), run_here, run_as_rank)


if __name__ == "__main__":
    sys.exit(main())
