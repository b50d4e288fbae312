"""The forms in which errors and notes reach the user."""

from __future__ import annotations

import sys

from launch.data.printable import printable
from spmd.errors import SpmdError


def report_error(message: str) -> None:
    """Write an error to standard error. All errors of the command line have this form."""
    sys.stderr.write(f"spmd: error: {printable(message)}\n")
    sys.stderr.flush()


def one_line(error: Exception) -> str:
    """Return the first line of an error's message, with its type unless the message is meant for users."""
    text = str(error) if isinstance(error, SpmdError) else f"{type(error).__name__}: {error}"
    return (text.splitlines() or [type(error).__name__])[0]


def report_note(message: str) -> None:
    """Print a note for the user about something that is no failure."""
    sys.stderr.write(f"spmd: note: {printable(message)}\n")
    sys.stderr.flush()
