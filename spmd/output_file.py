"""Atomic writes of files: data is written to a file in the same folder, which then replaces the target."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from spmd.errors import RunError

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class OutputFileError(RunError):
    """A file that cannot be written, for example for lack of space. The previous file is unchanged."""


def write_file(path: Path, data: bytes | str) -> None:
    """Write bytes, or text as UTF-8, to ``path``. Raises OutputFileError on failure."""
    with replaced_file(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path``, with its mode, at the end of a body that raises nothing.

    Symbolic links stay: the file that they name is replaced. A target that is no regular file (a pipe, /dev/null) is
    written directly, and so is a file in a folder that this user may not write to. Raises OutputFileError for any
    OSError.
    """
    try:
        target = Path(os.path.realpath(path))
        half = _partial_file(target)
        if half is None:
            with target.open("wb") as file:
                yield file
            return
        try:
            with half.open("wb") as file:
                yield file
            half.replace(target)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputFileError(f"{path}: cannot be written: {error.strerror or error}") from error


def _partial_file(target: Path) -> Path | None:
    """Make an empty file in ``target``'s folder with ``target``'s mode; None if the target is to be written
    directly.
    """
    try:
        found = target.stat()
    except FileNotFoundError:
        found = None
    if found is not None and not stat.S_ISREG(found.st_mode):
        return None
    half = target.with_name(f".{secrets.token_hex(6)}.partial")  # short, whatever the target's name
    try:
        descriptor = os.open(half, _CREATE, 0o666)
    except PermissionError:
        if found is None:
            raise
        return None
    if found is not None:
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
    os.close(descriptor)
    return half
