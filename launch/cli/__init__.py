"""The `spmd` command: one file per subcommand, each with `add_arguments` and `run`, imported where it is asked for.

Exit codes: 0 done; 1 a check failed; 2 bad usage or bad input; 3 any other failure: while running, of the system, or a
defect of this project. Errors are one readable message on standard error (SPMD_TRACEBACK=1 adds where a defect lies);
`--json` prints one object on standard output and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Container, Mapping, Sequence
from typing import Any

from launch.ranks.messages import report_error
from spmd.errors import RunError, SpmdError

#: Name of a command -> its summary in `spmd --help`. A command is launch/cli/NAME.py.
COMMANDS: Mapping[str, str] = {
    "run": "compile and run a module",
    "compile": "compile ahead of time",
    "opt": "transform a module and print it",
    "partition": "print the per-device program",
    "explain": "print the cause of each sharding and of each collective",
    "stats": "count instructions, flops, collectives and memory",
    "bench": "time a module's step",
    "calibrate": "measure this machine",
    "profile": "measure a module's step: hidden and exposed communication, and the causes",
    "simulate": "simulate a module's schedule on a described machine",
    "launch": "run a command on N MPI ranks",
}

INTERRUPTED = 130


class UsageError(SpmdError):
    """Options that do not go together, or not with the module; a command that there is not."""


def require_command(name: str) -> None:
    """Raise UsageError if there is no such command, with a similar one or all."""
    if name not in COMMANDS:
        from spmd.name_suggestions import did_you_mean  # deferred: for unknown commands

        meant = did_you_mean(name, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
        raise UsageError(f"spmd has no command {name!r}{meant}")


class _Formatter(argparse.HelpFormatter):
    """Formatter of a terminal's width. argparse makes one for each argument; its own imports shutil for the width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_terminal_columns() - 2)


def _terminal_columns() -> int:
    """Return what shutil.get_terminal_size returns, without its 8 modules of archives."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    if sys.__stdout__ is not None:
        with contextlib.suppress(ValueError, OSError):  # closed, or not a terminal
            return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80
    return 80


class _Parser(argparse.ArgumentParser):
    """A parser that accepts options by their full names only: `--see 3` is no `--seed 3`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Formatter, **options})


class _Version(argparse.Action):
    """Print versions, found when they are asked for, and stop."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from launch.cli.version import version_text

        print(version_text())
        parser.exit()


def import_command(arguments: Sequence[str]) -> str | None:
    """Import the command that the arguments name, and return its name; None if they name none."""
    command = next((word for word in _help_of(arguments) if not word.startswith("-")), None)
    if command not in COMMANDS:
        return None
    importlib.import_module(f"launch.cli.{command}")
    return command


def build_parser(commands: Container[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of all commands; it knows the options of those that are given, which are imported."""
    parser = _Parser(
        prog="spmd",
        description="Compile sharded HLO modules and run them on MPI ranks or in-process devices.",
        epilog="`spmd COMMAND --help` lists a command's options. Exit codes: 0 done; 1 a check failed; 2 bad usage or "
        "bad input; 3 a run failed: a rank, the system, or a defect of spmd (SPMD_TRACEBACK=1 prints the traceback).",
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
    for name, purpose in COMMANDS.items():
        command = subparsers.add_parser(name, help=purpose)
        if name in commands:
            importlib.import_module(f"launch.cli.{name}").add_arguments(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises."""
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            sys.stdout.flush()  # at shutdown, Python gives no message for a full disk
    except SpmdError as error:
        _report(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe (`spmd opt m.hlo | head`): print nothing more, also while Python shuts down.
        _discard_output()
        return 0
    except Exception as error:  # noqa: BLE001 - exit code 1 says that a check failed, and nothing else
        from launch.ranks.unexpected import describe_unexpected  # deferred: rarely needed

        _discard_output()
        _report(describe_unexpected(error))
        return RunError.exit_code
    return code


def _run(arguments: Sequence[str]) -> int:
    arguments = _help_of(arguments)
    if arguments and not arguments[0].startswith("-"):
        require_command(arguments[0])
    command = import_command(arguments)
    try:
        options = build_parser(() if command is None else (command,)).parse_args(arguments)
    except SystemExit as exit_request:  # argparse has printed the error or the help
        return exit_request.code if isinstance(exit_request.code, int) else 2
    code: int = options.run(options)
    return code


def _help_of(arguments: Sequence[str]) -> Sequence[str]:
    """Return what `spmd help` and `spmd help COMMAND` stand for; any other arguments as they are."""
    return [*arguments[1:2], "--help"] if arguments[:1] == ["help"] else arguments


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
