"""Counts of the collectives that each rank has enqueued, by group, visible among the ranks of a node.

A rank counts when it puts a collective on its stream. One whose count is behind has certainly not come: that is whom a
message names when the others wait in vain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.communicator.group import Group
from collectives.communicator.interface import Communicator


class Arrivals:
    """Counts of some groups, in memory that all ranks share, where they do. Made by all ranks together."""

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
        """This rank comes to the next collective of ``group``: how many that makes."""
        row = self._rows[group]
        self._counts[row, self._rank] += 1
        return int(self._counts[row, self._rank])

    def missing(self, group: Group, count: int) -> list[int]:
        """Those of ``group`` that have certainly come less than ``count`` times."""
        row = self._counts[self._rows[group]]
        return [rank for rank in group if rank in self._seen and row[rank] < count]
