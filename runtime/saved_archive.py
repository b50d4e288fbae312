"""The archive of a saved executable, whose members are compared with the file's size before anything is read.

A zip archive of the scheduled module and of the shapes and shardings of its arrays, members stored one after the other:

    executable.json   format, version, shape and sharding of every input and output in HLO text syntax, the offsets
                      of values in heaps, and what the scheduler expects of collectives (saved_overlap.py)
    module.hlo.pb     the scheduled per-device module, constants included, as an HloProto
    program           what a machine like the writer's makes of it (saved_program.py); not of every module
    code              machine code for the writer's processor, if it was asked for

saved.py writes it and saved_program.py loads it.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from binascii import crc32
from collections.abc import Callable, Mapping
from typing import Any

from spmd.errors import SpmdError
from spmd.lazy_dataclass import dataclass

FORMAT = "spmd-executable"
VERSION = 6
HEADER = "executable.json"
MODULE = "module.hlo.pb"
PROGRAM = "program"
CODE = "code"


class SavedExecutableError(SpmdError):
    """Bytes that are not an executable of this version."""


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
        named = at + _LOCAL.size
        name = data[named : named + name_size].decode("ascii", "replace")
        if not members and name != HEADER:
            raise SavedExecutableError(
                f"not a saved executable: its first member is {name}, expected {HEADER}"
            )
        first = named + name_size + extra
        at = first + size
        members[name] = data[first:at]
        if method != _STORED or packed != size:
            raise SavedExecutableError(f"not a saved executable: {name} is packed or too large")
        if crc32(members[name]) != crc:
            raise SavedExecutableError(f"not a saved executable: {name} is damaged or cut off")
    if data[at : at + 4] not in (_DIRECTORY, _END) or data[-_END_SIZE:][:4] != _END:
        raise SavedExecutableError("not a saved executable: it is not an archive, or is truncated")
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
        raise SavedExecutableError(
            f"not a saved executable: {HEADER} does not state the format {FORMAT}"
        )
    if header.get("version") != VERSION:
        raise SavedExecutableError(
            f"saved as version {header.get('version')!r}, this is version {VERSION}: compile it again"
        )
    return header


# ---- machine code: object files under the keys by which the compiler looks for them
#
#     for each: key, 64 bytes | digest of the object file (SHA-256), 32 bytes | its length, 8 bytes | the object file
#
# A key is a digest of a kernel's IR, the processor and the compiler (codegen/llvm/jit.py), so that code for another
# machine is not found; another entry names the key of a variant's code. Code is used only if the user trusts who
# wrote it.


_KEY, _DIGEST, _LENGTH = 64, 32, 8
_HEAD = _KEY + _DIGEST + _LENGTH


def code_bytes(code: Mapping[str, Callable[[], bytes]]) -> bytes:
    """Return object files as bytes; waits for those that are being made."""
    parts = []
    for key, get in sorted(code.items()):
        made = get()
        parts += [key.encode(), _digest(made), len(made).to_bytes(_LENGTH, "little"), made]
    return b"".join(parts)


def read_code(data: bytes) -> dict[str, bytes]:
    """Return the object files by key. Raises SavedExecutableError if their bytes are damaged."""
    code = {}
    at = 0
    while at < len(data):
        head = data[at : at + _HEAD]
        first = at + _HEAD
        at = first + int.from_bytes(head[_KEY + _DIGEST :], "little")
        made = data[first:at]
        key, digest = head[:_KEY], head[_KEY : _KEY + _DIGEST]
        if len(head) < _HEAD or at > len(data) or digest != _digest(made) or not key.isalnum():
            raise SavedExecutableError("not a saved executable: its machine code is damaged")
        code[key.decode()] = made
    return code


def _digest(made: bytes) -> bytes:
    return hashlib.sha256(made).digest()
