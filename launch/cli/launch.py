"""`spmd launch -n N -- run ...`: start an MPI job of this command, one rank per device."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path

from launch.cli import require_command
from launch.cli.arguments import positive
from launch.mpirun import MpiJob, cores_for_each, in_slurm_allocation
from launch.ranks.rank_environment import CHECK_FAILED_ON_RANK, LAUNCHED_VARIABLE
from spmd.errors import CheckFailed, RunError

#: A rank's exit code -> the exit code of this command. All other codes, including 1, come from a killed rank or a
#: launcher that failed.
_CODES = {0: 0, CHECK_FAILED_ON_RANK: CheckFailed.exit_code, 2: 2, 3: 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Build and run the mpirun or srun line for `spmd COMMAND ...`, with the environment it needs; "
        "an interrupt ends every rank."
    )
    parser.usage = (
        "spmd launch -n N [--hostfile F | --slurm] [--cores-per-rank K] [--dry-run] -- COMMAND ..."
    )
    parser.add_argument(
        "-n",
        type=positive,
        required=True,
        dest="ranks",
        metavar="N",
        help="number of ranks, one per device",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--hostfile", type=Path, metavar="F", help="hosts to run on, one per line (mpirun's format)"
    )
    where.add_argument(
        "--slurm",
        action="store_true",
        help="start the ranks with srun (default: inside a Slurm allocation)",
    )
    parser.add_argument(
        "--cores-per-rank",
        type=positive,
        metavar="K",
        help="bind each rank to K cores, which its BLAS uses (default: this machine's cores divided by the ranks; no "
        "binding on other hosts, or with more ranks than cores)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the mpirun or srun line and stop"
    )
    parser.add_argument(
        "arguments", nargs="+", metavar="COMMAND ...", help="an spmd command with its options"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    command = options.arguments[0]
    if not command.startswith("-"):
        require_command(command)
    job = _job(options)
    if options.dry_run:
        print(shlex.join(job.arguments()))
        return 0
    code = job.run()
    if code < 0:
        raise RunError(
            f"the launcher ({Path(job.arguments()[0]).name}) was ended by {signal.Signals(-code).name}"
        )
    return _CODES.get(code, RunError.exit_code)


def _job(options: argparse.Namespace) -> MpiJob:
    slurm = options.slurm or (options.hostfile is None and in_slurm_allocation())
    cores = options.cores_per_rank
    if cores is None and options.hostfile is None and not slurm:
        cores = cores_for_each(options.ranks)
    command = (sys.executable, "-m", "launch", *options.arguments)
    variables = ((LAUNCHED_VARIABLE, "1"),)
    return MpiJob(options.ranks, command, options.hostfile, cores, slurm, variables)
