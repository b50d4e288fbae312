"""Counts of the collectives that each rank has enqueued, by group, in memory that all ranks share if possible.

A rank increments its count when it enqueues a collective on its stream. A rank whose count is lower has certainly not
arrived, so that the error message of a wait that times out can name it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.communicator.group import Group
from collectives.communicator.interface import Communicator


class Arrivals:
    """Counts of some groups.

    All ranks must create them together, with the same ``groups``. Ranks whose counts are not visible to this rank,
    because they do not share memory, are never reported as missing.
    """

    def __init__(self, host: Communicator, groups: Sequence[Group]) -> None:
        everyone = tuple(range(host.size))
        memory = host.allocate_shared(8 * (len(groups) + 1) * host.size, everyone)
        self._counts = memory.view(np.int64).reshape(len(groups) + 1, host.size)
        self._rank = host.rank
        self._rows = {group: row for row, group in enumerate(groups, 1)}
        self._counts[0, self._rank] = 1
        host.barrier()
        self._seen = [rank for rank in everyone if self._counts[0, rank]]

    def arrive(self, group: Group) -> int:
        """Count the next collective of ``group`` on this rank. Returns the number of collectives so far."""
        row = self._rows[group]
        self._counts[row, self._rank] += 1
        return int(self._counts[row, self._rank])

    def missing(self, group: Group, count: int) -> list[int]:
        """Return the ranks of ``group`` that have certainly enqueued fewer than ``count`` of its collectives."""
        row = self._counts[self._rows[group]]
        return [rank for rank in group if rank in self._seen and row[rank] < count]
