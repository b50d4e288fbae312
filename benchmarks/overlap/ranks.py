"""One rank's part of link.py: a program's step with overlap, without, and its halves alone, in turns.

    python -m benchmarks.two_hosts -- python -m benchmarks.overlap.ranks MODULE [--machine F.json] [--rounds 10]

Rank 0 prints one JSON object: seconds of every round by what ran (``STEPS``), how wrong the ranks' clocks are found to
be (both read one clock here, so that any difference is an error), the report that `spmd profile` would make, and the
predicted step of any order in pieces (``LeastStep``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives.cost.estimator import CostError
from launch.cli.bench import DEVIATION
from launch.cli.programs.simulated_program import least_of
from launch.collective_groups import OVERLAPPING
from launch.data.inputs import SeededInputs
from launch.entry import Compiled, Entry
from launch.execution import execute_steps, time_steps
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.ranks.rank_environment import world_of_environment
from launch.ranks.rank_executable import RankExecutable
from launch.ranks.shared_compile import compile_on_first
from launch.ranks.shutdown import run_rank
from launch.ranks.world import open_world
from launch.report.clock import clock_offsets
from launch.report.environment import describe_environment
from launch.report.overlap.as_json import as_json
from launch.report.overlap.read import run_of_trace
from launch.report.overlap.report import overlap_report
from launch.report.recording import Recording
from launch.report.trace import recorded_trace
from launch.target.machine_option import machine_for
from launch.target.measured_durations import durations_of
from runtime.program.thunks import (
    CollectiveDoneThunk,
    CollectiveStartThunk,
    Role,
    Thunk,
    ThunkSequence,
    UseKind,
)
from spmd.json_fields import JsonFields
from spmd.literal import NDArray
from spmd.machine.description import MachineDescription
from spmd.text.sources.load import load

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator

#: scheduled: as compiled for the link, with times of work that a first run has measured. waiting: the same steps, with
#: every collective waited for at its start. traced: as scheduled, taking down a timeline. compute: without the
#: collectives. communication: without what computes. plain: compiled without the passes that let collectives overlap.
STEPS = ("scheduled", "waiting", "traced", "compute", "communication", "plain")
#: Thunks that count trips or choose branches write at most this, and stay in a program of collectives alone.
COUNTER_BYTES = 64


def without(sequence: ThunkSequence, drops: Callable[[Thunk], bool]) -> ThunkSequence:
    """``sequence`` and those within it without the thunks that ``drops`` is true of."""
    kept = (_without_within(one, drops) for one in sequence.thunks if not drops(one))
    return replace(sequence, thunks=tuple(kept))


def _without_within(thunk: Thunk, drops: Callable[[Thunk], bool]) -> Thunk:
    """A loop's or a conditional's sequences are fields of its own."""
    if isinstance(thunk, ThunkSequence):
        return without(thunk, drops)
    changed: dict[str, Any] = {}
    for place in fields(thunk):
        value = getattr(thunk, place.name)
        if isinstance(value, ThunkSequence):
            changed[place.name] = without(value, drops)
        elif isinstance(value, tuple) and value and isinstance(value[0], ThunkSequence):
            changed[place.name] = tuple(without(one, drops) for one in value)
    return replace(thunk, **changed) if changed else thunk


def communicates(thunk: Thunk) -> bool:
    return isinstance(thunk, CollectiveStartThunk | CollectiveDoneThunk)


def computes(thunk: Thunk) -> bool:
    """Return whether the thunk computes more than a loop's counter."""
    if thunk.is_composite or communicates(thunk):
        return False
    written = (
        use.array.view.byte_size
        for use in thunk.buffer_uses()
        if use.kind is UseKind.WRITE and use.role is Role.RESULT
    )
    return max(written, default=0) > COUNTER_BYTES


@dataclass(frozen=True)
class Loaded:
    """A program on this rank. inputs: global arrays, of which a run takes its own tiles: it may consume them."""

    executable: RankExecutable
    inputs: list[NDArray]

    @staticmethod
    def of(executable: RankExecutable, inputs: list[NDArray], **changed: Any) -> Loaded:
        own = replace(executable, **changed, _loaded=None)
        own.load_devices()
        return Loaded(own, inputs)

    def last(self, steps: int, counted: int) -> list[float]:
        """Seconds of the last ``counted`` of ``steps``; those before find memory as they leave it."""
        return time_steps(self.executable, self.executable.put(self.inputs), steps)[-counted:]


def measured(world: MpiCommunicator, options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure the module; return the figures on rank 0, and None on the other ranks."""
    module = load(options.module)
    machine = machine_for(options.machine, world.nodes.devices_of_each)

    def compiled(asked: CompileOptions) -> RankExecutable:
        return compile_on_first(
            world, lambda: Compiled(compile_module(module, world.size, asked), "")
        )

    asked = CompileOptions(machine=machine)
    made = compiled(asked)
    seeded = SeededInputs(0, [boundary.shape for boundary in made.inputs], DEVIATION)
    inputs = [seeded[n] for n in range(len(made.inputs))]
    trace = recorded(made, inputs, machine, options.rounds)
    if trace is not None:
        profile = JsonFields(trace, "the profile", CostError)
        asked = replace(asked, durations=durations_of(profile))
    made = compiled(asked)
    program = made.program
    steps = Loaded.of(made, inputs, reference_every=2)
    others = {
        "traced": Loaded.of(made, inputs, record=True),
        "compute": Loaded.of(
            made, inputs, program=replace(program, thunks=without(program.thunks, communicates))
        ),
        "communication": Loaded.of(
            made, inputs, program=replace(program, thunks=without(program.thunks, computes))
        ),
        "plain": Loaded.of(compiled(replace(asked, without=OVERLAPPING)), inputs),
    }
    seconds: dict[str, list[float]] = {name: [] for name in STEPS}
    for _ in range(options.rounds):
        # Every second step is one that waits.
        scheduled, waiting = steps.last(4, 2)
        seconds["scheduled"].append(scheduled)
        seconds["waiting"].append(waiting)
        for name, one in others.items():
            seconds[name] += one.last(2, 1)
    trace = recorded(made, inputs, machine, options.rounds)
    clocks = [clock_offsets(world, f"of rank {world.rank}") for _ in range(3)]
    if trace is None:
        return None
    least = least_of(module, world.size, CompileOptions(machine=machine))
    return {
        "module": made.module.name
        if options.module.stem != "module"
        else options.module.parent.name,
        "machine": str(machine),
        "exchange": {
            name: getattr(machine.exchanges[-1], name) for name in ("bandwidth", "latency", "busy")
        },
        "environment": describe_environment(),
        "seconds": seconds,
        "clock_errors_s": [1e-9 * max(abs(one.ahead) for one in found) for found in clocks],
        "clock_uncertainty_s": [1e-9 * max(one.uncertainty for one in found) for found in clocks],
        "report": as_json(overlap_report(run_of_trace(trace, made.module.name))),
        "least": least and asdict(least),
    }


def recorded(
    made: RankExecutable, inputs: list[NDArray], machine: MachineDescription, rounds: int
) -> dict[str, Any] | None:
    """The trace of as many steps of each kind; on rank 0."""
    executable = Loaded.of(made, inputs, record=True, reference_every=2).executable
    recording = Recording(executable, after=2)
    feedback = Entry.of_executable(executable).feedback
    execute_steps(executable, executable.put(inputs), 2 + 2 * rounds, feedback, recording.step)
    return recorded_trace(executable, recording.gather(), machine)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("module", type=Path)
    parser.add_argument("--machine", metavar="NAME|F.json")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    place = world_of_environment()
    if place is None:
        parser.error("start it on ranks: python -m benchmarks.two_hosts -- ...")

    def as_rank(world: MpiCommunicator) -> int:
        found = measured(world, options)
        if found is not None:
            print(json.dumps(found))
        world.barrier()
        return 0

    return run_rank(open_world(place[1], 300.0), as_rank)


if __name__ == "__main__":
    sys.exit(main())
