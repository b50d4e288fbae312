"""`python -m launch` is the `spmd` command.

Nothing is imported here before an interrupt is seen to: to import the command takes half a second.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

TYPE_CHECKING = False  # defined as type checkers expect it, because importing typing takes time
if TYPE_CHECKING:
    from collections.abc import Callable

    from spmd.errors import PackageError

#: Exit code that shells report for a command that SIGINT ended.
INTERRUPTED = 130


def main() -> int:
    """Run the command and return its exit code.

    A rank is tied to its launcher, and watched, before anything that takes time: the imports of the command.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _end_at_once)
    from launch.ranks.rank_environment import world_of_environment

    world = world_of_environment()
    if world is not None:
        if interruptible:  # the rank's code handles an interrupt during MPI_Init
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return _run_as_rank(*world)
    command = _imported_command()
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = command()
        if interruptible:  # the command is complete: keep its exit code while Python ends
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code
    except KeyboardInterrupt:
        return INTERRUPTED


def _imported_command() -> Callable[[], int]:
    """Import what the command line asks for. If a package is too old for it, return a function that says so."""
    from spmd.errors import PackageError

    try:
        from launch.cli import import_command
        from launch.cli import main as command

        import_command(sys.argv[1:])
    except PackageError as error:
        return partial(_refuse, error)
    return command


def _refuse(error: PackageError) -> int:
    from launch.ranks.messages import report_error

    report_error(str(error))
    return error.exit_code


def _end_at_once(_: int, __: object) -> None:
    """End without a word: an exception in the middle of an import can become another one."""
    os._exit(INTERRUPTED)


def _run_as_rank(rank: int, ranks: int) -> int:
    from launch.ranks.rank_environment import exit_code_of_rank, timeout_of
    from launch.ranks.startup import begin_start

    start = begin_start(rank, ranks)
    timeout = timeout_of(sys.argv[1:])
    if timeout is not None:
        start.watchdog.limit(timeout)
    return exit_code_of_rank(_imported_command()())


if __name__ == "__main__":
    sys.exit(main())
