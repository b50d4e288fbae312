"""The forms in which errors and notes reach the user."""

from __future__ import annotations

import sys

from spmd.errors import SpmdError

# ---- text that came from a file: names in it could clear the screen, or hide what is there


def printable(text: str, keep: str = "\n\t") -> str:
    """Return ``text`` with unprintable characters escaped as Python does, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text)


def printable_lines(lines: list[str]) -> str:
    """Join the lines, with control characters in them replaced."""
    return "\n".join(printable(line, keep="") for line in lines)


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
