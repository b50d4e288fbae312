"""The forms in which errors and notes reach the user."""

from __future__ import annotations

import sys

from launch.printable import printable


def report_error(message: str) -> None:
    """The one form in which errors reach the user."""
    sys.stderr.write(f"spmd: error: {printable(message)}\n")
    sys.stderr.flush()


def report_note(message: str) -> None:
    """What a user should know though nothing failed."""
    sys.stderr.write(f"spmd: note: {printable(message)}\n")
    sys.stderr.flush()
