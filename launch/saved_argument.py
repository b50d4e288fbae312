"""Resolution of MODULE arguments that name a saved executable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spmd.errors import HloParseError

if TYPE_CHECKING:
    from runtime.executable import Executable

STANDARD_INPUT = "-"

#: The first bytes of a saved executable, which is a zip archive.
MAGIC = b"PK\x03\x04"


def load_saved(argument: str) -> Executable | None:
    """The saved executable; None where ``argument`` names something else."""
    if argument == STANDARD_INPUT:
        return None
    from runtime.load_saved import load_bytes  # which a module does without

    try:
        return load_bytes(Path(argument).read_bytes(), argument) if is_saved(argument) else None
    except OSError:
        return None  # what it is, the reader of modules says


def is_saved(argument: str) -> bool:
    """Return whether the file is a saved executable. A pipe can be read only once, so it is left to the reader of
    modules."""
    path = Path(argument)
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def is_executable(where: str) -> HloParseError:
    return HloParseError(
        f"{where} is an executable that `spmd compile` wrote, which only run, bench and profile take; here it must be "
        "the module that it was made of"
    )
