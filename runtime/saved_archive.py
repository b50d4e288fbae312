"""The archive of a saved executable: its members, whose sizes are compared with the file before anything is read."""

from __future__ import annotations

import io
import json
import struct
from binascii import crc32
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
#: Local header of a member of a zip archive: signature, version, flags, method (0: stored), time, date, CRC-32, sizes
#: of the packed and the unpacked member, lengths of its name and of its extra field; both, and the bytes, follow.
_LOCAL = struct.Struct("<4s5H3I2H")
_SIGNATURE, _STORED = b"PK\x03\x04", 0
#: Signatures of the directory behind the members, and of the end of an archive without a comment.
_DIRECTORY, _END, _END_SIZE = b"PK\x01\x02", b"PK\x05\x06", 22


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
        members = _members(data)
        header = _read_header(_member(members, HEADER, _MAX_HEADER))
        module = _member(members, MODULE, len(data))
        code = read_code(members.get(CODE, b""))
    except SavedExecutableError as error:
        raise SavedExecutableError(f"{where}: {error}") from error
    return Archive(header, module, members.get(PROGRAM), code)


def archive_bytes(
    header: str | bytes, module: bytes, program: bytes | None, code: bytes = b""
) -> bytes:
    """Return the archive; equal members give equal bytes."""
    import zipfile  # deferred: it brings 12 modules, and few runs write an archive

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
    members = _members(data)
    return archive_bytes(members[HEADER], members[MODULE], program)


def _members(data: bytes) -> dict[str, bytes]:
    """Return the members by name, which lie one after the other, as ``archive_bytes`` writes them."""
    members: dict[str, bytes] = {}
    at = 0
    while data[at : at + 4] == _SIGNATURE and at + _LOCAL.size <= len(data):
        *_, method, _, _, crc, packed, size, name_size, extra = _LOCAL.unpack_from(data, at)
        first = at + _LOCAL.size + name_size + extra
        name = data[at + _LOCAL.size :][:name_size].decode("ascii", "replace")
        at = first + size
        members[name] = data[first:at]
        if method != _STORED or packed != size:
            raise SavedExecutableError(f"not a saved executable: {name} is packed or too large")
        if crc32(members[name]) != crc:
            raise SavedExecutableError(f"not a saved executable: {name} is damaged or cut off")
    if data[at : at + 4] not in (_DIRECTORY, _END) or data[-_END_SIZE:][:4] != _END:
        raise SavedExecutableError("not a saved executable: it is no archive, or cut off")
    return members


def _member(members: dict[str, bytes], name: str, limit: int) -> bytes:
    if name not in members:
        raise SavedExecutableError(f"not a saved executable: it holds no {name}")
    if len(members[name]) > limit:
        raise SavedExecutableError(f"not a saved executable: {name} is too large")
    return members[name]


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
