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


#: Other names of the arrays, for files that users write.
_POSITIONAL = " (or arr_0, arr_1, ..., as np.savez(F, a, b) names them)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a module on the ranks of an MPI job (spmd launch, mpirun), else on devices of this process. "
        "Files hold global arrays, and each rank reads only its own tiles; a name with %r, such as in.%r.npz, means "
        "one file of tiles for each device."
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
        help="absolute tolerance of --expect and --check (default: from case.json, else 64 ulp)",
    )
    parser.add_argument(
        "--rtol",
        type=tolerance,
        metavar="R",
        help="relative tolerance of --expect and --check (default: from case.json, else by element type)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the schedule and the buffers, and compare with the unpartitioned reference evaluator; if they "
        "differ, name the first op that diverges and exit 1",
    )
    parser.add_argument(
        "--backend",
        choices=("cpu", "gpu", "reference"),
        default="cpu",
        help="run on this machine's cores, on GPUs (docs/gpu.md), or in the unpartitioned reference evaluator "
        "(default: cpu)",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="with --expect and --check: also list the outputs that agree",
    )
    parser.add_argument(
        "--infeed",
        type=Path,
        metavar="F.npz",
        help="arrays for the infeeds, in execution order: infeed0, infeed1, ...",
    )
    parser.add_argument(
        "--outfeed",
        type=Path,
        metavar="F.npz",
        help="write the arrays of the outfeeds: outfeed0, outfeed1, ...",
    )
    add_memory_limit(parser)
    parser.add_argument(
        "--steps",
        type=positive,
        default=1,
        metavar="K",
        help="run K steps; aliased outputs are inputs of the next step (default: 1)",
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
