"""The archive of a saved executable: its members, whose sizes are compared with the file before anything is read."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from typing import Any

from runtime.saved_code import read_code
from runtime.saved_format import (
    CODE,
    FORMAT,
    HEADER,
    MODULE,
    PROGRAM,
    VERSION,
    SavedExecutableError,
)

_EPOCH = (1980, 1, 1, 0, 0, 0)
#: Largest header in bytes; a header has some hundred bytes for each of the entry's array leaves.
_MAX_HEADER = 1 << 26


@dataclass(frozen=True)
class Archive:
    """``header``: of this format and version. ``program``: None where the file has none. ``code``: by key."""

    header: dict[str, Any]
    module: bytes
    program: bytes | None
    code: dict[str, bytes]


def read_archive(data: bytes, where: str) -> Archive:
    """Raises SavedExecutableError, naming ``where``, if ``data`` is no saved executable of this version."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            header = _read_header(_member(archive, HEADER, _MAX_HEADER))
            module = _member(archive, MODULE, len(data))
            more = [name for name in (PROGRAM, CODE) if name in archive.namelist()]
            found = {name: _member(archive, name, len(data)) for name in more}
            code = read_code(found.get(CODE, b""))
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError) as error:
        raise SavedExecutableError(f"{where}: not a saved executable: {error}") from error
    except SavedExecutableError as error:
        raise SavedExecutableError(f"{where}: {error}") from error
    return Archive(header, module, found.get(PROGRAM), code)


def archive_bytes(
    header: str | bytes, module: bytes, program: bytes | None, code: bytes = b""
) -> bytes:
    """Return the archive; equal members give equal bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(HEADER, _EPOCH), header)
        archive.writestr(zipfile.ZipInfo(MODULE, _EPOCH), module)
        if program is not None:
            archive.writestr(zipfile.ZipInfo(PROGRAM, _EPOCH), program)
        if code:
            archive.writestr(zipfile.ZipInfo(CODE, _EPOCH), code)
    return stream.getvalue()


def with_program(data: bytes, program: bytes | None) -> bytes:
    """Return the archive ``data``, which has been read, with ``program`` instead of its own, and without code."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive_bytes(archive.read(HEADER), archive.read(MODULE), program)


def _member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise SavedExecutableError(f"not a saved executable: it holds no {name}") from None
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > limit:
        raise SavedExecutableError(f"not a saved executable: {name} is packed or too large")
    return archive.read(info)


def _read_header(data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SavedExecutableError(f"not a saved executable: {HEADER}: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise SavedExecutableError(f"not a saved executable: {HEADER} says nothing of it")
    if header.get("version") != VERSION:
        raise SavedExecutableError(
            f"saved as version {header.get('version')!r}, this is version {VERSION}: compile it again"
        )
    return header
