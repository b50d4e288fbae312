"""The `spmd` command: one file per subcommand, each with `add_parser` and `run`.

Exit codes: 0 done; 1 a check failed; 2 bad usage or bad input; 3 a failure while running. Errors are one readable
message on standard error; `--json` prints one object on standard output and nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import launch.cli.bench as bench
import launch.cli.calibrate as calibrate
import launch.cli.compile as compile_command
import launch.cli.explain as explain
import launch.cli.launch as launch_command
import launch.cli.opt as opt
import launch.cli.partition as partition
import launch.cli.profile as profile
import launch.cli.run as run
import launch.cli.simulate as simulate
import launch.cli.stats as stats
from launch.messages import report_error
from spmd.errors import SpmdError
from spmd.memory import as_out_of_memory

SUBCOMMANDS = (
    run,
    compile_command,
    opt,
    partition,
    explain,
    stats,
    bench,
    calibrate,
    profile,
    simulate,
    launch_command,
)
INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spmd",
        description="Compile sharded HLO modules and run them on MPI ranks or in-process devices.",
        epilog="`spmd COMMAND --help` lists a command's options. Exit codes: 0 done; 1 a check failed; 2 bad usage or "
        "bad input; 3 a failure while running.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for subcommand in SUBCOMMANDS:
        subcommand.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for bad input."""
    try:
        options = build_parser().parse_args(sys.argv[1:] if argv is None else argv)
    except SystemExit as exit_request:  # argparse has said what is wrong, or printed help
        return exit_request.code if isinstance(exit_request.code, int) else 2
    try:
        code: int = options.run(options)
    except SpmdError as error:
        report_error(str(error))
        return error.exit_code
    except MemoryError as error:
        missing = as_out_of_memory(error)
        report_error(str(missing))
        return missing.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`spmd opt m.hlo | head`): nothing more to say, not even when Python shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
