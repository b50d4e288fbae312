"""A board in shared memory where each rank of a node notes what it does, for peers that wait for it in vain."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping

from collectives.communicator.reduction import Array

_TEXT_BYTES = 248
_ROW = struct.Struct(f"=d{_TEXT_BYTES}s")
ROW_BYTES = _ROW.size


class StatusBoard:
    """One row per rank of this node: when (seconds, CLOCK_MONOTONIC of the node) and what, UTF-8.

    A row is written by its rank alone; a reader may see half a note, which serves a message well enough.
    """

    def __init__(self, rank: int, rows: Mapping[int, Array]) -> None:
        """``rows``: by rank, ROW_BYTES bytes of memory that the node shares; zeros at first."""
        self._rows = rows
        self._own = rows[rank].data

    def note(self, text: str) -> None:
        """Replace this rank's row."""
        self.prepared(text)()

    def prepared(self, text: str) -> Callable[[], None]:
        """A note that costs little to leave, again and again."""
        data = text.encode()[:_TEXT_BYTES]
        row, pack, now = self._own, _ROW.pack_into, time.monotonic
        return lambda: pack(row, 0, now(), data)

    def whereabouts(self, rank: int) -> str:
        """What ``rank`` noted last and how long ago; says so where it is on another node."""
        if rank not in self._rows:
            return "is on another node"
        written, data = _ROW.unpack(self._rows[rank].tobytes())
        if written == 0.0:
            return "has not called a collective"
        text = data.rstrip(b"\0").decode(errors="replace")
        return f"{text} (noted {time.monotonic() - written:.1f} s ago)"
