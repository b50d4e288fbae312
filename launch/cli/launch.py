"""`spmd launch -n N -- run ...`: start an MPI job of this command, one rank per device."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from launch.cli.module_argument import positive
from launch.mpirun import MpiJob
from spmd.errors import RunError

KNOWN_CODES = range(4)


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "launch",
        help="run a command on N MPI ranks",
        description="Build and run the mpirun line for `spmd COMMAND ...`, with the environment it needs.",
        usage="spmd launch -n N [--hostfile F] [--dry-run] -- COMMAND ...",
    )
    parser.add_argument(
        "-n", type=positive, required=True, dest="ranks", help="number of ranks, one per device"
    )
    parser.add_argument(
        "--hostfile", type=Path, help="hosts to run on, one per line (mpirun's format)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the line instead of running it"
    )
    parser.add_argument(
        "arguments", nargs="+", metavar="COMMAND ...", help="a command of spmd with its options"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    command = (sys.executable, "-m", "launch", *options.arguments)
    job = MpiJob(options.ranks, command, options.hostfile)
    if options.dry_run:
        print(" ".join(job.arguments()))
        return 0
    code = job.run()
    # A rank killed by a signal, or a launcher that failed, has codes of its own.
    return code if code in KNOWN_CODES else RunError.exit_code
