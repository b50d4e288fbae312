"""Dependencies among instructions while more and more of them are combined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spmd.hlo.instruction import HloInstruction


class Dependencies:
    """Dependencies among ``nodes``, some instructions of a computation with the post-order ``order``.

    Joined nodes have the operands and the users of each of them; a pair may be joined if that leaves no cycle. Sets of
    nodes are bits of integers.
    """

    def __init__(self, order: Iterable[HloInstruction], nodes: Sequence[HloInstruction]) -> None:
        self._bit = {x: 1 << i for i, x in enumerate(nodes)}
        needed: dict[HloInstruction, int] = {}
        for x in order:
            behind = 0
            for before in (*x.operands, *x.control_predecessors):
                behind |= needed[before] | self._bit.get(before, 0)
            needed[x] = behind
        #: For each node that represents joined nodes: the bits of all of them, and the bits of all nodes that they
        #: depend on.
        self._members = {x: self._bit[x] for x in nodes}
        self._needs = {x: needed[x] for x in nodes}

    def may_join(self, x: HloInstruction, y: HloInstruction) -> bool:
        """Return whether neither depends on the other. ``x`` and ``y`` represent the nodes that were joined to them."""
        return not (self._needs[x] & self._members[y] or self._needs[y] & self._members[x])

    def join(self, x: HloInstruction, y: HloInstruction) -> None:
        """Make ``y`` part of ``x``, which represents both from now on."""
        self._members[x] |= self._members.pop(y)
        self._needs[x] |= self._needs.pop(y)
        members, needs = self._members[x], self._needs[x]
        for other in self._needs:
            if self._needs[other] & members:
                self._needs[other] |= needs | members
