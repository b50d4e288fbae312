"""The commands of `spmd`, and the error of those that are not used as they should be."""

from __future__ import annotations

from collections.abc import Mapping

from spmd.errors import SpmdError

#: Name -> what `spmd --help` says of it. A command is launch/cli/NAME.py.
COMMANDS: Mapping[str, str] = {
    "run": "compile and run a module",
    "compile": "compile ahead of time",
    "opt": "transform a module and print it",
    "partition": "print the per-device program",
    "explain": "say why each value is sharded as it is, and why each collective is there",
    "stats": "count instructions, flops, collectives and memory",
    "bench": "time a module's step",
    "calibrate": "measure this machine",
    "profile": "measure a module's step: what communication is hidden, and what is not and why",
    "simulate": "run a module's schedule on a described machine",
    "launch": "run a command on N MPI ranks",
}


class UsageError(SpmdError):
    """Options that do not go together, or not with the module; a command that there is not."""


def require_command(name: str) -> None:
    """Raise UsageError if there is no such command, with a similar one or all."""
    if name not in COMMANDS:
        from spmd.name_suggestions import did_you_mean  # for what no command is called

        meant = did_you_mean(name, COMMANDS) or f"; it has {', '.join(COMMANDS)}"
        raise UsageError(f"spmd has no command {name!r}{meant}")
