"""The `spmd` command: one file per subcommand, each with `add_parser` and `run`.

Exit codes: 0 done; 1 a check failed; 2 bad usage or bad input; 3 any other failure: while running, of the system, or a
defect of this project. Errors are one readable message on standard error (SPMD_TRACEBACK=1 adds where a defect lies);
`--json` prints one object on standard output and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

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
from launch.cli.version import version_text
from launch.job import UsageError
from launch.messages import report_error
from launch.unexpected import describe_unexpected
from spmd.errors import RunError, SpmdError
from spmd.near_names import did_you_mean

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


class _Parser(argparse.ArgumentParser):
    """A parser that takes options by their whole names: `--see 3` is no `--seed 3`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})


class _Version(argparse.Action):
    """Print versions, found when they are asked for, and stop."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version_text())
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="spmd",
        description="Compile sharded HLO modules and run them on MPI ranks or in-process devices.",
        epilog="`spmd COMMAND --help` lists a command's options. Exit codes: 0 done; 1 a check failed; 2 bad usage or "
        "bad input; 3 a failure while running, of the system, or a defect (SPMD_TRACEBACK=1 prints where).",
    )
    parser.add_argument(
        "--version",
        nargs=0,
        action=_Version,
        help="print the version, and those of Python, NumPy, llvmlite, mpi4py and MPI",
    )
    subparsers = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    for subcommand in SUBCOMMANDS:
        subcommand.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises."""
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            sys.stdout.flush()  # not when Python shuts down, where a full disk has no message of its own
    except SpmdError as error:
        _report(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`spmd opt m.hlo | head`): nothing more to say, not even when Python shuts down.
        _discard_output()
        return 0
    except Exception as error:  # noqa: BLE001 - exit code 1 says that a check failed, and nothing else
        _discard_output()
        _report(describe_unexpected(error))
        return RunError.exit_code
    return code


def _run(arguments: Sequence[str]) -> int:
    arguments = _help_of(arguments)
    _require_command(arguments)
    try:
        options = build_parser().parse_args(arguments)
    except SystemExit as exit_request:  # argparse has said what is wrong, or printed help
        return exit_request.code if isinstance(exit_request.code, int) else 2
    code: int = options.run(options)
    return code


def _help_of(arguments: Sequence[str]) -> Sequence[str]:
    """Return what `spmd help` and `spmd help COMMAND` stand for; any other arguments as they are."""
    return [*arguments[1:2], "--help"] if arguments[:1] == ["help"] else arguments


def _require_command(arguments: Sequence[str]) -> None:
    """Raise UsageError where the first argument is no command, with a near one."""
    known = [module.__name__.rpartition(".")[2] for module in SUBCOMMANDS]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in known:
        meant = did_you_mean(arguments[0], known) or f"; it has {', '.join(known)}"
        raise UsageError(f"spmd has no command {arguments[0]!r}{meant}")


def _report(message: str) -> None:
    with contextlib.suppress(OSError):  # standard error may be on the same full disk
        report_error(message)


def _discard_output() -> None:
    """Leave nothing in standard output's buffer that could fail again when Python shuts down."""
    if sys.stdout is None:
        return
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
