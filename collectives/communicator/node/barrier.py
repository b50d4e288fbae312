"""A barrier of the ranks of one node: ranks that arrive early sleep in the kernel until the last one arrives.

On cores that ranks have to share, a rank that sleeps takes no time from the rank it waits for.

    rank 0 arrives ─ sleeps ────────────────┐
    rank 1 arrives, the last ─ wakes rank 0 ┘ both go on

Each member's cache line counts its arrivals, from which the others see which member is late. Words only grow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collectives.communicator.actions.engine import BarrierEngine, BarrierRecord
from collectives.communicator.actions.shared_buffers import MEMORY_ALIGNMENT
from collectives.communicator.group import Array, Group

if TYPE_CHECKING:
    from collectives.communicator.node.shared_window import SharedWindow

#: Each member has a line of its own arrivals. The first member also holds the arrivals of all, and the word at which
#: members sleep, which is followed by the number of those that may sleep there.
BARRIER_BYTES = 3 * MEMORY_ALIGNMENT
_OWN, _COME, _OPENED = range(0, BARRIER_BYTES, MEMORY_ALIGNMENT)

_SPIN_LIMIT = 2000
"""Looks before a member sleeps, some 100 us, where everyone has a core: to wake a core that idles takes longer."""


class NodeBarrier:
    """This rank's side of a barrier. Each passage: ``enter``, then ``wait`` until that returns True."""

    def __init__(
        self,
        engine: BarrierEngine,
        window: SharedWindow,
        rank: int,
        members: Group,
        *,
        offset: int = 0,
        has_cores: bool,
    ) -> None:
        """``offset``: where BARRIER_BYTES of zeros lie in every member's segment. has_cores: one for each member."""
        first = members[0]
        self._lines = {member: window.address(member, offset + _OWN) for member in members}
        self._node_barrier = engine.node_barrier(
            BarrierRecord(
                members=len(members),
                own=self._lines[rank],
                come=window.address(first, offset + _COME),
                opened=window.address(first, offset + _OPENED),
                spin_limit=_SPIN_LIMIT if has_cores else 0,
            )
        )
        self._keep: Sequence[Array] = [window.segment(rank, offset + BARRIER_BYTES)]

    def enter(self) -> bool:
        return not self._node_barrier.enter()

    def wait(self) -> bool:
        """Some tenth of a second at most, so that the caller can watch the others."""
        return not self._node_barrier.wait()

    def late(self) -> list[int]:
        """Return the members that have not come to the passage at which this one is."""
        number = self._node_barrier.number
        return [
            member
            for member, line in self._lines.items()
            if ctypes.c_int64.from_address(line).value < number
        ]
