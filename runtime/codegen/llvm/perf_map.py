"""Names of compiled functions for Linux perf: the file /tmp/perf-PID.map, which `perf report` reads.

Each line has the address and size of a function in hexadecimal, and its name with that of the first thunk that calls
the function:

    7f3c5a1b2000 1a4 spmd_rows[row_divide_fusion]
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

_FUNCTION, _SYMBOL_TABLE = 2, 2


class PerfMap:
    """Perf map of this process, to which each linked object file is added. ``folder``: where perf looks for maps."""

    def __init__(self, folder: Path = Path("/tmp")) -> None:  # noqa: S108 - the place that perf reads
        self.path = folder / f"perf-{os.getpid()}.map"
        self._append("", os.O_TRUNC)

    def add(self, code: bytes, addresses: dict[str, int], caller: str) -> None:
        """Append the functions of the object file ``code``, which is linked at ``addresses`` (by name).

        caller: name of the first thunk that calls the code, or "".
        """
        sizes = dict(function_sizes(code))
        lines = [
            f"{address:x} {sizes.get(name, 0):x} {name}{f'[{caller}]' if caller else ''}\n"
            for name, address in addresses.items()
        ]
        self._append("".join(lines))

    def _append(self, text: str, more: int = 0) -> None:
        """Append ``text`` to the file. Raises OSError if a symbolic link, perhaps of another user, is in its place."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | more
        with os.fdopen(os.open(self.path, flags, 0o600), "w") as file:
            file.write(text)


def function_sizes(code: bytes) -> Iterator[tuple[str, int]]:
    """Yield the name and the size in bytes of each function of a 64-bit little-endian ELF object.

    It yields nothing for other formats.
    """
    if code[:6] != b"\x7fELF\x02\x01":
        return
    (start,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + size * n) for n in range(count)]
    for section in sections:
        if section[1] != _SYMBOL_TABLE:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, _, _, _, length = struct.unpack_from("<IBBHQQ", code, at)
            if info & 0xF == _FUNCTION:
                yield code[names + name : code.index(b"\0", names + name)].decode(), length
