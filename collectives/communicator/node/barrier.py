"""Barrier among the ranks of one node: ranks that arrive early sleep in the kernel until the last one arrives.

If ranks share cores, a sleeping rank takes no time from the ranks for which it waits.

    rank 0 arrives ─ sleeps ────────────────┐
    rank 1 arrives, the last ─ wakes rank 0 ┘ both go on

Each member counts its arrivals in a cache line of its own, from which the others see which member is late. Counters are
never reset.
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

#: Size in bytes of a member's part of the barrier: cache lines at the offsets ``_OWN``, ``_COME`` and ``_OPENED``. The
#: first counts the member's own arrivals. The other two are used only in the first member's part: one counts the
#: arrivals of all members; one holds the futex word at which members sleep, and the number of those that may sleep.
BARRIER_BYTES = 3 * MEMORY_ALIGNMENT
_OWN, _COME, _OPENED = range(0, BARRIER_BYTES, MEMORY_ALIGNMENT)

_SPIN_LIMIT = 2000
"""Number of polls, about 100 us, before a member with a core of its own sleeps: waking an idle core takes longer."""


class NodeBarrier:
    """One rank's side of a barrier that is passed any number of times.

    To pass the barrier, call ``enter``; unless it returns True, call ``wait`` until that returns True.
    """

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
        """Create the barrier of ``members`` in ``window``, of which ``rank`` is one.

        ``offset`` is the offset of BARRIER_BYTES bytes, initially zero, in every member's segment. ``has_cores`` tells
        whether each member has a core of its own, so that a member may poll before it sleeps.
        """
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
        """Arrive at the next passage, then wait as ``wait`` does. Returns whether all members have arrived."""
        return not self._node_barrier.enter()

    def wait(self) -> bool:
        """Wait again for the other members, for about a tenth of a second at most.

        Returns whether all members have arrived. The time is limited so that the caller can check the other ranks.
        """
        return not self._node_barrier.wait()

    def late(self) -> list[int]:
        """Return the members that have not yet arrived at the passage that this rank has entered."""
        number = self._node_barrier.number
        return [
            member
            for member, line in self._lines.items()
            if ctypes.c_int64.from_address(line).value < number
        ]
