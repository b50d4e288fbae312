"""Random schedules over overlapping groups, run by real ranks: none may hang, and all give what the evaluator gives.

python -m tests.collectives.schedule.random_runs --count 1000 --ranks 4                     threads of this process
mpirun -n 4 python -m tests.collectives.schedule.random_runs --count 1000 --ranks 4         processes, on nodes where
                                                                                            SPMD_NODE_ID tells so
    --first N                     the seed to begin with
    --timeout S                   seconds after which a rank that waits gives up

A seed is a program (random_programs.py) and seconds for its instructions; the latency-hiding scheduler orders it by
these, with limits that let several collectives be in flight, every second time of the same devices, and the checkers
look at the order first.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from collectives.communicator.interface import Communicator
from collectives.passes.async_creation import AsyncCreation
from collectives.schedule.latency_hiding import LatencyOptions, schedule_for_latency
from collectives.schedule.overlap_limits import OverlapLimits
from collectives.schedule.phases import is_done, is_start
from launch.ranks.rank_environment import NODE_ID_VARIABLE, world_of_environment
from launch.ranks.rank_executable import RankExecutable
from runtime.compile import build_executable
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.executable import Executable
from spmd.errors import SpmdError
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloModule
from tests.collectives.schedule.random_programs import SIZE, random_program
from tests.collectives.schedule.table_estimator import random_estimator
from tests.collectives.schedule.window_checker import check_windows

#: Per rank, the arrays of one step; what a run gives back, or expects.
Arrays = list[list[np.ndarray]]
#: Runs a module on the inputs of all ranks; the outputs of those that this process runs, by rank.
Run = Callable[[HloModule, Arrays], dict[int, list[np.ndarray]]]


def schedule_of(seed: int, ranks: int) -> HloModule:
    """A random program in a random order that hides latency."""
    rng = np.random.default_rng([seed, ranks])
    module = random_program(seed, ranks)
    AsyncCreation().run(module)
    limits = OverlapLimits(int(rng.integers(2, 5)), apart=bool(rng.random() < 0.5))
    schedule_for_latency(module, random_estimator(rng), LatencyOptions(limits))
    check_windows(module, apart=limits.apart)
    return module


def inputs_of(module: HloModule, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(-9, 9, SIZE).astype(np.float32) for _ in module.entry.parameters]
        for _ in range(module.num_partitions)
    ]


def overlaps(module: HloModule) -> int:
    """Return how many collectives start while another one is in flight."""
    found = 0
    for computation in module.computations:
        in_flight = 0
        for x in computation.instructions:
            found += is_start(x) and in_flight > 0
            in_flight += is_start(x) - is_done(x)
    return found


def on_threads(
    module: HloModule, inputs: Arrays, timeout_seconds: float = 60.0
) -> dict[int, list[np.ndarray]]:
    executable = build_executable(module)
    executable.timeout_seconds = timeout_seconds
    return dict(enumerate(executable.run_devices(inputs)))


def check_run(seed: int, ranks: int, run: Run) -> HloModule:
    """SpmdError (a collective that times out among them) or AssertionError where the schedule does not run right."""
    module = schedule_of(seed, ranks)
    inputs = inputs_of(module, seed)
    wanted = evaluate_partitions(module, inputs)
    for rank, got in run(module, inputs).items():
        for one, other in zip(got, wanted[rank], strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}, rank {rank}")
    return module


def _over_mpi(timeout_seconds: float) -> tuple[Run, Callable[[], None]]:
    from collectives.communicator.mpi.communicator import MpiCommunicator

    node = os.environ.get(NODE_ID_VARIABLE)
    communicator = MpiCommunicator(
        timeout_seconds=timeout_seconds, engine=native_collective_engine(), node_id=node
    )
    run = on_ranks(communicator)
    return run, communicator.close


def on_ranks(communicator: Communicator) -> Run:
    def run(module: HloModule, inputs: Arrays) -> dict[int, list[np.ndarray]]:
        executable: Executable = RankExecutable.of(
            build_executable(module, check=False), communicator
        )
        return {communicator.rank: executable.run_devices([inputs[communicator.rank]])[0]}

    return run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=60.0)
    options = parser.parse_args(arguments)
    world = world_of_environment()
    run: Run
    if world is None:
        run, end = (
            (lambda module, inputs: on_threads(module, inputs, options.timeout)),
            lambda: None,
        )
    else:
        run, end = _over_mpi(options.timeout)
    speaks = world is None or world[0] == 0
    collectives = beside = 0
    start = time.perf_counter()
    for seed in range(options.first, options.first + options.count):
        try:
            module = check_run(seed, options.ranks, run)
        except (SpmdError, AssertionError) as error:
            print(f"seed {seed}: {error}", file=sys.stderr, flush=True)
            return 1
        collectives += sum(map(is_start, module.all_instructions()))
        beside += overlaps(module)
        if speaks and (seed + 1) % 100 == 0:
            print(f"{seed + 1 - options.first} schedules", file=sys.stderr, flush=True)
    end()
    if speaks:
        where = "threads" if world is None else "processes"
        print(
            f"{options.count} schedules on {options.ranks} {where}: {collectives} collectives, {beside} of them started "
            f"while others were in flight; no deadlock, all results the evaluator's; {time.perf_counter() - start:.0f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
