"""Bytes available for instructions that run ahead of their turn, if all others follow in the order of turns.

An order within the limit is given, and another one is made from it. At any moment the remaining instructions can run in
the given order: instructions that ran ahead add their results' bytes to the positions before their turn, and subtract
those of values that died early. An instruction may run ahead if no remaining position exceeds the limit then, so there
is no dead end.

    turn   0   1   2   3   4        from the beginning, 3 runs ahead of 1: its result is live at 1 and 2, too;
    spare  5   2   4   6   6        with 3 bytes it may not (2 at turn 1), with 2 bytes it may
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from collectives.schedule.live_trackers import BackwardTracker, ForwardTracker
from collectives.schedule.schedule_graph import ScheduleGraph
from spmd.analysis.live_buffers import LiveBuffers
from spmd.hlo.instruction import HloInstruction

#: Counter of live bytes, in the direction in which an order is built.
Tracker: TypeAlias = ForwardTracker | BackwardTracker


class Headroom:
    """Free bytes at each turn of an order.

    key: the turn of each node.
    needs: live bytes at each turn.
    limit: largest number of live bytes.
    """

    def __init__(
        self,
        graph: ScheduleGraph,
        key: Sequence[int],
        buffers: LiveBuffers,
        tracker: Tracker,
        needs: Sequence[int],
        limit: int,
    ) -> None:
        self._graph, self._key, self._tracker, self._limit = graph, key, tracker, limit
        self._size = buffers.size
        self._spare: np.ndarray[Any, np.dtype[np.int64]] = limit - np.array(needs, np.int64)
        #: Turns at which each buffer becomes live and ends to be live if all nodes run at their turns.
        self._begin, self._end = _live_ranges(graph, key, buffers, tracker)

    def allows(self, node: int, turn: int) -> bool:
        """Return whether ``node`` may run now. ``turn``: the first node that has not run."""
        if self._key[node] == turn:
            return True
        (x, *more) = self._graph.members[node]
        # A group counts at its turn; the finished order is measured in any case.
        if more or self._tracker.need(x) > self._limit:
            return False
        changes = self._changes(x, turn)
        until = max((last for last, size in changes if size > 0), default=turn)
        if until <= turn:
            return True
        spare = self._spare[turn:until].copy()
        for last, size in changes:
            spare[: last - turn] -= size
        return bool(spare.min() >= 0)

    def advance(self, node: int, turn: int) -> None:
        """Record that ``node`` runs now."""
        members = self._graph.members[node]
        for x in members if isinstance(self._tracker, ForwardTracker) else reversed(members):
            for last, size in self._changes(x, turn):
                self._spare[turn:last] -= size
            self._tracker.schedule(x)

    def _changes(self, x: HloInstruction, turn: int) -> list[tuple[int, int]]:
        """Return pairs of a turn and the additional bytes that are live from ``turn`` until then."""
        begins, ends = self._tracker.changes(x)
        found = [(self._begin[b], self._size[b]) for b in begins if self._begin[b] > turn]
        found += [(self._end[b] + 1, -self._size[b]) for b in ends if self._end[b] >= turn]
        return found


def _live_ranges(
    graph: ScheduleGraph, key: Sequence[int], buffers: LiveBuffers, tracker: Tracker
) -> tuple[list[int], list[int]]:
    count = len(buffers.size)
    written = [-1] * count
    first, last = [len(graph)] * count, [-1] * count
    for node, members in enumerate(graph.members):
        for x in members:
            for buffer in buffers.written[x]:
                written[buffer] = key[node]
            for buffer in buffers.read[x]:
                first[buffer] = min(first[buffer], key[node])
                last[buffer] = max(last[buffer], key[node])
    if isinstance(tracker, ForwardTracker):
        return written, last
    # In a backward order a buffer becomes live at its first reader in that order, and ends at its writer.
    return first, [len(graph) if turn < 0 else turn for turn in written]


def needs_by_turn(
    graph: ScheduleGraph, key: Sequence[int], order: Sequence[HloInstruction], needs: Sequence[int]
) -> list[int]:
    """Return for each turn the maximum of ``needs`` over its node's instructions, which stand in ``order``."""
    need_of: dict[HloInstruction, int] = dict(zip(order, needs, strict=True))
    found = [0] * len(graph)
    for node, members in enumerate(graph.members):
        found[key[node]] = max(need_of[x] for x in members)
    return found
