"""Files that a command reads, no more of them than there may be: they may have come from anyone."""

from __future__ import annotations

from pathlib import Path

from spmd.errors import SpmdError


def read_at_most(path: Path, most: int, error: type[SpmdError]) -> bytes:
    """Read at most one byte more than ``most``, so that the caller can detect a file that is too large. Raises
    ``error`` if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as reason:
        raise error(f"{path}: cannot be read: {reason.strerror or reason}") from reason
