"""Files that a command will write: refused before the work where they cannot be made, not after it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from spmd.errors import SpmdError


class OutputPathError(SpmdError):
    """A path at which no file can be written."""


def path_ending_in(suffixes: Sequence[str], text: str) -> Path:
    """Parse a path that ends in one of ``suffixes``, which select the format of a file (an argparse type)."""
    path = Path(text)
    if path.suffix not in suffixes:
        raise argparse.ArgumentTypeError(
            f"expected a name that ends in {' or '.join(suffixes)}, found {text!r}"
        )
    return path


def require_writable(*paths: Path | None) -> None:
    """Raise OutputPathError if no file can be written at a path, or if two paths are equal. None stands for no file."""
    taken = set()
    for path in filter(None, paths):
        fault = _fault(path)
        if fault is not None:
            raise OutputPathError(f"{path}: cannot be written: {fault}")
        resolved = path.resolve()
        if resolved in taken and (path.is_file() or not path.exists()):
            raise OutputPathError(f"{path}: two output options name this file")
        taken.add(resolved)


def require_folder(path: Path | None) -> None:
    """Raise OutputPathError if ``path`` is not, and cannot become, a folder that files can be written to."""
    if path is None:
        return
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not nearest.is_dir():
        raise OutputPathError(f"{path}: the folder cannot be created: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK):
        raise OutputPathError(
            f"{path}: the folder cannot be created: no permission to write to {nearest}"
        )


def _fault(path: Path) -> str | None:
    folder = path.parent
    if path.is_dir():
        return "it is a folder"
    if not folder.is_dir():
        return f"there is no folder {folder}"
    if not os.access(path if path.exists() else folder, os.W_OK):
        return "no permission"
    return None
