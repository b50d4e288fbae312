"""Format of the errors and notes that are printed for the user."""

from __future__ import annotations

import sys

from spmd.errors import SpmdError

# ---- text from a file: control characters in names could clear the screen or hide text


def printable(text: str, keep: str = "\n\t") -> str:
    """Return ``text`` with unprintable characters escaped as Python does, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text)


def printable_lines(lines: list[str]) -> str:
    """Join the lines by newlines, with unprintable characters in them escaped as Python does."""
    return "\n".join(printable(line, keep="") for line in lines)


def report_error(message: str) -> None:
    """Write an error to standard error. All errors of the command line have this form."""
    sys.stderr.write(f"spmd: error: {printable(message)}\n")
    sys.stderr.flush()


def one_line(error: Exception) -> str:
    """Return the first line of an error's message, after the error's type if it is no SpmdError."""
    text = str(error) if isinstance(error, SpmdError) else f"{type(error).__name__}: {error}"
    return (text.splitlines() or [type(error).__name__])[0]


def report_note(message: str) -> None:
    """Write a note for the user, about a condition that is no failure, to standard error."""
    sys.stderr.write(f"spmd: note: {printable(message)}\n")
    sys.stderr.flush()
