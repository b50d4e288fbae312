"""`python -m launch` is the `spmd` command."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence

from launch.messages import report_error
from launch.rank_environment import exit_code_of_rank, world_of_environment
from spmd.errors import PackageError


def main() -> int:
    """A rank is tied to its launcher, and watched, before anything that takes time: the imports of the command."""
    world = world_of_environment()
    if world is not None:
        from launch.starting import begin_start

        start = begin_start(*world)
        timeout = timeout_of(sys.argv[1:])
        if timeout is not None:
            start.attendant.limit(timeout)
    try:
        from launch.cli import main as command
    except PackageError as error:
        report_error(str(error))
        code = error.exit_code
    else:
        code = command()
    return code if world is None else exit_code_of_rank(code)


def timeout_of(arguments: Sequence[str]) -> float | None:
    """What --timeout says; None without it, and where the command will complain of it."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--timeout", type=float)
    with contextlib.suppress(argparse.ArgumentError):
        found: float | None = parser.parse_known_args(arguments)[0].timeout
        return found
    return None


if __name__ == "__main__":
    sys.exit(main())
