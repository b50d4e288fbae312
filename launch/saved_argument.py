"""Resolution of MODULE arguments that name a saved executable."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from launch.cache.digest import digest_of
from spmd.errors import HloParseError, SpmdError

if TYPE_CHECKING:
    from launch.cache.saved_programs import LoadedFile

STANDARD_INPUT = "-"

#: The first bytes of a saved executable, which is a zip archive.
MAGIC = b"PK\x03\x04"


def load_saved(argument: str, *, trusted: bool = False) -> LoadedFile | None:
    """Return the saved executable; None if ``argument`` names something else. trusted: use the file's thunks."""
    if argument == STANDARD_INPUT:
        return None
    # Deferred, because modules do not need it.
    from launch.cache.saved_programs import load_file_bytes

    try:
        data = Path(argument).read_bytes() if is_saved(argument) else None
    except OSError:
        return None  # the reader of modules reports the error
    return None if data is None else load_file_bytes(data, argument, trusted=trusted)


def trust_code_in(argument: str) -> None:
    """Use the machine code in the file, if it is a saved executable, for all that this process needs from now on."""
    if argument == STANDARD_INPUT or not is_saved(argument):
        return
    # Deferred, because modules do not need them, as above.
    from runtime.saved_archive import read_archive
    from runtime.saved_program import trust

    with suppress(OSError, SpmdError):  # loading the file reports these
        trust(read_archive(Path(argument).read_bytes(), argument))


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


def saved_digest(argument: str) -> str | None:
    """Return a digest of the file, if it is a saved executable that can be read."""
    if argument == STANDARD_INPUT or not is_saved(argument):
        return None
    try:
        return digest_of(Path(argument).read_bytes())
    except OSError:
        return None  # the reader of modules reports the error


def is_executable(where: str) -> HloParseError:
    return HloParseError(
        f"{where} is an executable that `spmd compile` wrote, which only run, bench and profile accept; this command "
        "needs the module"
    )
