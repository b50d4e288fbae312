"""Machine code in saved executables: object files under the keys by which the compiler looks for them.

    for each: key, 64 bytes | digest of the object file (SHA-256), 32 bytes | its length, 8 bytes | the object file

A key is a digest of a kernel's IR, the processor and the compiler (codegen/llvm/jit.py), so that code for another
machine is not found. Code is used only if the user trusts who wrote it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from runtime.saved_format import SavedExecutableError

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
