"""How long ranks wait for one that shows no sign of life: the command line's word, the environment's, the default."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence


def timeout_of(arguments: Sequence[str]) -> float | None:
    """Return what --timeout says; None without it, and where the command will complain of it."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--timeout", type=float)
    with contextlib.suppress(argparse.ArgumentError):
        found: float | None = parser.parse_known_args(arguments)[0].timeout
        return found
    return None
