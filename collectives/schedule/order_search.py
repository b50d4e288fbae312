"""The best order of one computation among those that list scheduling makes from both ends.

A pass from the end fills waits with earlier work, one from the beginning with later work, and each stays near to the
order that it is given; so they take turns, as long as that helps (forward-backward improvement, Li and Willis 1992).
Orders are compared on the timeline; one that holds more bytes than there may be is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product

from collectives.schedule.list_scheduler import ListScheduler, Room
from collectives.schedule.live_trackers import BackwardTracker, ForwardTracker
from collectives.schedule.overlap_limits import OverlapLimits
from collectives.schedule.schedule_graph import ScheduleGraph
from collectives.schedule.scheduling_groups import ScheduleError
from collectives.schedule.timeline import Timeline, run_timeline
from collectives.schedule.window_costs import WindowCosts
from spmd.analysis.live_buffers import Buffer, LiveBuffers
from spmd.analysis.live_bytes import live_bytes
from spmd.hlo.instruction import HloInstruction

#: Rounds of two passes.
MOST_ROUNDS = 3
#: A round that saves less than this part of the time is the last.
WORTH_A_ROUND = 1e-3
#: Where memory refuses an order: seconds by which work may run ahead of its turn, in lengths of the longest window.
REACHES = (8.0, 2.0, 0.5, 0.0)
#: Part of the time by which an order has to be better than the one that is there.
LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Memory:
    """Of one computation: inner: what callers need while they run; held: inputs that stay; limit: None for none."""

    buffers: LiveBuffers
    inner: Mapping[HloInstruction, int]
    held: Sequence[Buffer]
    limit: int | None

    def peak(self, order: Sequence[HloInstruction]) -> int:
        return max(live_bytes(self.buffers, order, self.inner, self.held), default=0)

    def allows(self, order: Sequence[HloInstruction]) -> bool:
        return self.limit is None or self.peak(order) <= self.limit


@dataclass(frozen=True)
class Found:
    """An order, and what it takes."""

    order: Sequence[HloInstruction]
    timeline: Timeline

    def is_better(self, other: Found) -> bool:
        return self.timeline.seconds < other.timeline.seconds * (1 - LEAST_GAIN)


class Preference(Enum):
    """What goes first of what may.

    ORDER: what stands first. WINDOW_PATHS: of windows, those on the longest path; of work, what stands first. PATHS:
    all by their paths. FEED: as WINDOW_PATHS, but while nothing is in flight, work that leads to a window.
    """

    ORDER = "order"
    WINDOW_PATHS = "window paths"
    PATHS = "paths"
    FEED = "feed"


class OrderSearch:
    """Makes orders of ``graph`` and keeps the best; ``stands``: the order as it is, which meets the limit."""

    def __init__(
        self,
        graph: ScheduleGraph,
        stands: Sequence[HloInstruction],
        costs: WindowCosts,
        limits: OverlapLimits,
        memory: Memory,
    ) -> None:
        self._graph, self._costs, self._limits, self._memory = graph, costs, limits, memory
        self._rank = list(range(len(graph)))
        self.best = Found(stands, run_timeline(stands, costs))
        self._paths = {backward: graph.paths(backward=backward) for backward in (True, False)}
        self._leads = {backward: graph.leads(backward=backward) for backward in (True, False)}

    def run(self) -> Found:
        """ScheduleError where scheduling groups cannot stay together."""
        if self._graph.has_blocks:
            self.best = self._with_blocks()
        if not self._graph.windows:
            return self.best
        for _ in range(MOST_ROUNDS):
            before = self.best
            for backward, preference in product((True, False), Preference):
                if self._is_exposed():
                    self._go(preference, backward=backward)
            saved = before.timeline.seconds - self.best.timeline.seconds
            if saved <= WORTH_A_ROUND * before.timeline.seconds:
                break
        return self.best

    def _is_exposed(self) -> bool:
        return any(span.exposed for span in self.best.timeline.spans)

    def _with_blocks(self) -> Found:
        """The order that stands, but for groups that are not together yet: they are, whatever time that takes."""
        nodes = self._pass(self._rank, Preference.ORDER, backward=False)
        if nodes is None:
            limit = self._memory.limit
            within = f" within {limit:,} bytes" if limit is not None else ""
            name = self._memory.buffers.computation.name
            raise ScheduleError(f"the scheduling groups of {name} cannot all stay together{within}")
        self._rank = _places(nodes)
        return self._judge(nodes)

    def _go(self, preference: Preference, *, backward: bool) -> None:
        """A pass in one direction and one back, from the best order so far."""
        rank = self._rank
        for direction in (backward, not backward):
            nodes = self._pass(rank, preference, backward=direction)
            if nodes is None:
                return
            rank = _places(nodes)
            found = self._judge(nodes)
            if found.is_better(self.best):
                self.best, self._rank = found, rank

    def _by_path(self, rank: Sequence[int], *, backward: bool) -> list[int]:
        """Places by how much has to follow (backward: to come before), by ``rank`` among equals."""
        paths = self._paths[backward]
        sign = 1.0 if backward else -1.0
        return _places(sorted(range(len(rank)), key=lambda node: (sign * paths[node], rank[node])))

    def _judge(self, nodes: Sequence[int]) -> Found:
        order = self._graph.instructions(nodes)
        return Found(order, run_timeline(order, self._costs))

    def _pass(
        self, rank: Sequence[int], preference: Preference, *, backward: bool
    ) -> list[int] | None:
        """The first order that keeps to the limit: without counting bytes, and then with ever less freedom."""
        first = rank
        if preference is not Preference.ORDER:
            first = self._by_path(rank, backward=backward)
        if preference is Preference.PATHS:
            rank = first
        for room in self._rooms(backward=backward):
            nodes = ListScheduler(
                self._graph,
                rank,
                first,
                self._costs.sharing,
                self._limits,
                backward=backward,
                room=room,
                leads=self._leads[backward] if preference is Preference.FEED else (),
            ).run()
            if nodes is not None and self._memory.allows(self._graph.instructions(nodes)):
                return nodes
        return None

    def _rooms(self, *, backward: bool) -> Iterator[Room]:
        yield Room()
        limit = self._memory.limit
        if limit is None:
            return
        make = BackwardTracker if backward else ForwardTracker
        longest = max((window.seconds for window in self._graph.windows), default=0.0)
        for reach in (float("inf"), *(longest * length for length in REACHES)):
            tracker = make(self._memory.buffers, self._memory.inner, self._memory.held)
            yield Room(tracker, limit, reach)


def _places(nodes: Sequence[int]) -> list[int]:
    """For each node, where it stands."""
    places = [0] * len(nodes)
    for place, node in enumerate(nodes):
        places[node] = place
    return places
