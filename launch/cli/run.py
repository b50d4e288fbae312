"""`spmd run MODULE`: compile, run and compare; on the ranks of an MPI job or on devices of this process."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from launch.cli.arguments import (
    add_memory_limit,
    add_program_arguments,
    add_seed,
    positive,
    tolerance,
)
from launch.cli.program import dispatch, program_here
from launch.cli.run_job import (
    conclude_job,
    execute_job,
    job_options,
    job_result,
    require_feeds,
    write_profile,
)
from runtime.device_program import RETAINED_STEPS, require_memory

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator


#: Part of the help of options that take files of users.
_POSITIONAL = " (or arr_0, arr_1, ..., as np.savez(F, a, b) names them)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a module on the ranks of an MPI job (spmd launch, mpirun), else on devices of this process. "
        "Files hold global arrays, of which each rank reads its own tiles; a name with %r in it, as in in.%r.npz, "
        "stands for one file of tiles for each device."
    )
    add_program_arguments(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--inputs", type=Path, metavar="F.npz", help=f"inputs arg0, arg1, ...{_POSITIONAL}"
    )
    add_seed(source)
    parser.add_argument(
        "--outputs", type=Path, metavar="F.npz", help="write the outputs out0, out1, ..."
    )
    parser.add_argument(
        "--expect",
        type=Path,
        metavar="F.npz",
        help=f"compare with the outputs out0, out1, ... of the same inputs{_POSITIONAL}; exit 1 if they differ",
    )
    parser.add_argument(
        "--atol",
        type=tolerance,
        metavar="A",
        help="with --expect and --check (default: case.json's, or 64 ulp)",
    )
    parser.add_argument(
        "--rtol",
        type=tolerance,
        metavar="R",
        help="with --expect and --check (default: case.json's, or by type)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the schedule and the buffers, and compare with the unpartitioned reference evaluator; exit 1, "
        "naming the first op that differs",
    )
    parser.add_argument(
        "--backend",
        choices=("cpu", "gpu", "reference"),
        default="cpu",
        help="what computes: this machine's cores (default: cpu), GPUs (docs/gpu.md), or the "
        "reference evaluator, unpartitioned",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="with --expect and --check: list the outputs that agree, too",
    )
    parser.add_argument(
        "--infeed",
        type=Path,
        metavar="F.npz",
        help="what infeeds take, in the order in which they take it: infeed0, infeed1, ..., one for each array",
    )
    parser.add_argument(
        "--outfeed",
        type=Path,
        metavar="F.npz",
        help="write what outfeeds give: outfeed0, outfeed1, ...",
    )
    add_memory_limit(parser)
    parser.add_argument(
        "--steps",
        type=positive,
        default=1,
        metavar="K",
        help="run K times, aliased outputs fed back (default: 1)",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="F.json",
        help=f"write a timeline of the last {RETAINED_STEPS} steps of all devices, for ui.perfetto.dev or chrome://tracing",
    )
    # None distinguishes the default from a seed on the command line.
    parser.set_defaults(run=run, seed=None)


def run(options: argparse.Namespace) -> int:
    return dispatch(
        options, _run_here, _run_as_rank, (options.outputs, options.outfeed, options.profile)
    )


def _run_here(options: argparse.Namespace) -> int:
    job = job_options(options)
    job.require_inputs()
    if options.backend == "reference":
        from launch.cli.run_reference import run_reference

        return run_reference(options, job)
    program = program_here(options)
    require_memory(program.executable.program, options.memory_limit)
    require_feeds(program.executable, job)
    program.executable.record = options.profile is not None
    done, outfeed = execute_job(program.executable, job)
    write_profile(options, program.executable)
    result = job_result(program.executable, done, outfeed, job)
    where = f"{program.executable.num_devices} devices of this process"
    return conclude_job(options, program, result, where)


def _run_as_rank(options: argparse.Namespace, world: MpiCommunicator) -> int:
    from launch.cli.run_on_ranks import run_as_rank

    return run_as_rank(options, world)
