"""A board in shared memory where each rank of a node notes what it does, for peers that wait for it in vain."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from collectives.communicator.reduction import Array

ROW_BYTES = 256
_TEXT_BYTES = ROW_BYTES - 8


class StatusBoard:
    """One row per rank of this node: when (seconds, CLOCK_MONOTONIC of the node) and what, UTF-8.

    A row is written by its rank alone; a reader may see half a note, which serves a message well enough.
    """

    def __init__(self, rank: int, rows: Mapping[int, Array]) -> None:
        """``rows``: by rank, ROW_BYTES bytes of memory that the node shares; zeros at first."""
        self._rows = rows
        self._time = rows[rank][:8].view(np.float64)
        self._text = rows[rank][8:ROW_BYTES]

    def note(self, text: str) -> None:
        """Replace this rank's row."""
        self.prepared(text)()

    def prepared(self, text: str) -> Callable[[], None]:
        """A note that costs little to leave, again and again."""
        encoded = np.zeros(_TEXT_BYTES, np.uint8)
        data = text.encode()[:_TEXT_BYTES]
        encoded[: len(data)] = np.frombuffer(data, np.uint8)
        stamp, row, now = self._time, self._text, time.monotonic

        def leave() -> None:
            stamp[0] = now()
            row[:] = encoded

        return leave

    def whereabouts(self, rank: int) -> str:
        """What ``rank`` noted last and how long ago; says so where it is on another node."""
        if rank not in self._rows:
            return "is on another node"
        row = self._rows[rank].copy()
        written = float(row[:8].view(np.float64)[0])
        if written == 0.0:
            return "has not called a collective"
        text = row[8:].tobytes().rstrip(b"\0").decode(errors="replace")
        return f"{text} (noted {time.monotonic() - written:.1f} s ago)"
