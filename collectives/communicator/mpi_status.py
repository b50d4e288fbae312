"""A board in shared memory where each rank of a node notes what it does, for peers that wait for it in vain."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
from mpi4py import MPI

ROW_BYTES = 256
_TEXT_BYTES = ROW_BYTES - 8


class StatusBoard:
    """One row per rank of this node: when (seconds, CLOCK_MONOTONIC of the node) and what, UTF-8.

    A row is written by its rank alone; a reader may see half a note, which serves a message well enough.
    Made and closed by all ranks together.
    """

    def __init__(self, world: MPI.Intracomm) -> None:
        node = world.Split_type(MPI.COMM_TYPE_SHARED, key=world.rank)
        assert isinstance(node, MPI.Intracomm)
        self._node = node
        ranks = np.empty(self._node.size, np.int64)
        self._node.Allgather(np.array([world.rank], np.int64), ranks)
        self._row_of = {int(rank): row for row, rank in enumerate(ranks)}
        size = ROW_BYTES * self._node.size if self._node.rank == 0 else 0
        self._window = MPI.Win.Allocate_shared(size, ROW_BYTES, comm=self._node)
        memory, _ = self._window.Shared_query(0)
        rows = np.frombuffer(cast(Any, memory), np.uint8).reshape(self._node.size, ROW_BYTES)
        self._rows: np.ndarray[tuple[int, int], np.dtype[np.uint8]] | None = rows
        rows[self._node.rank] = 0
        self._node.Barrier()

    def note(self, text: str) -> None:
        """Replace this rank's row."""
        if self._rows is None:
            return
        row = self._rows[self._node.rank]
        encoded = text.encode()[:_TEXT_BYTES]
        row[:8].view(np.float64)[0] = time.monotonic()
        row[8 : 8 + len(encoded)] = np.frombuffer(encoded, np.uint8)
        row[8 + len(encoded) :] = 0

    def whereabouts(self, rank: int) -> str:
        """What ``rank`` noted last and how long ago; says so where it is on another node."""
        if rank not in self._row_of or self._rows is None:
            return "is on another node"
        row = self._rows[self._row_of[rank]].copy()
        written = float(row[:8].view(np.float64)[0])
        if written == 0.0:
            return "has not called a collective"
        text = row[8:].tobytes().rstrip(b"\0").decode(errors="replace")
        return f"{text} (noted {time.monotonic() - written:.1f} s ago)"

    def close(self) -> None:
        """Free the shared memory; every rank of the node calls it."""
        if self._rows is not None:
            self._rows = None
            self._window.Free()
            self._node.Free()
