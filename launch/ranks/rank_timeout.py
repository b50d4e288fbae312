"""The time for which ranks wait for a rank that shows no sign of life, as the caller or the environment sets it."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Mapping, Sequence

from spmd.errors import SpmdError

DEFAULT_SECONDS = 300.0

#: Seconds, where neither --timeout nor a caller of ``spmd.compile`` says how many.
VARIABLE = "SPMD_TIMEOUT"


class TimeLimitError(SpmdError):
    """A time limit that is no number of seconds above zero."""


def timeout_of(arguments: Sequence[str]) -> float | None:
    """Return what --timeout says; None without it, and where the command will complain of it."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--timeout", type=float)
    with contextlib.suppress(argparse.ArgumentError):
        found: float | None = parser.parse_known_args(arguments)[0].timeout
        return found
    return None


def timeout_seconds(asked: float | None, environment: Mapping[str, str] = os.environ) -> float:
    """Return ``asked``, else the environment's, else the default. Raises TimeLimitError if that is no time above
    zero.
    """
    text = environment.get(VARIABLE, "")
    if asked is None and not text:
        return DEFAULT_SECONDS
    try:
        found = float(text) if asked is None else float(asked)
    except (TypeError, ValueError):
        found = 0.0
    if not found > 0:
        name, value = (VARIABLE, text) if asked is None else ("timeout", asked)
        raise TimeLimitError(f"{name} is {value!r}, expected a number of seconds above zero")
    return found
