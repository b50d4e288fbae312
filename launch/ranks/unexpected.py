"""Messages for exceptions that are no SpmdErrors: failures of the system, and defects of this project."""

from __future__ import annotations

import os
from collections.abc import Mapping

from launch.ranks.rank_environment import TRACEBACK_VARIABLE
from spmd.limits import as_out_of_memory


def describe_unexpected(error: Exception, environment: Mapping[str, str] = os.environ) -> str:
    """Return one line for ``error``, followed by its traceback if TRACEBACK_VARIABLE is "1"."""
    line = describe_system_failure(error)
    if line is None:
        first = str(error).partition("\n")[0]
        line = f"internal error: {type(error).__name__}{': ' if first else ''}{first}"
        if not wants_traceback(environment):
            line += f" ({TRACEBACK_VARIABLE}=1 prints where)"
    if not wants_traceback(environment):
        return line
    import traceback  # deferred: few runs need it

    return line + "\n" + "".join(traceback.format_exception(error)).rstrip("\n")


def describe_system_failure(error: BaseException) -> str | None:
    """Return one line for a MemoryError or an OSError, such as a full disk; None for any other error."""
    if isinstance(error, MemoryError):
        return str(as_out_of_memory(error))
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror or error}"
    return None


def wants_traceback(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether TRACEBACK_VARIABLE is "1"."""
    return environment.get(TRACEBACK_VARIABLE) == "1"
