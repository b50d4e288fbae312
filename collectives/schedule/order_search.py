"""The best order of one computation among those that list scheduling makes from both ends.

A pass from the end fills waits with earlier work, one from the beginning with later work, and each stays near to the
order that it is given; so they take turns, as long as that helps (forward-backward improvement, Li and Willis 1992).
Orders are compared on the timeline; one that holds more bytes than there may be is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import product

from collectives.schedule.headroom import Headroom, needs_by_turn
from collectives.schedule.list_scheduler import ListScheduler, Priorities
from collectives.schedule.live_trackers import BackwardTracker, ForwardTracker
from collectives.schedule.overlap_limits import OverlapLimits
from collectives.schedule.schedule_graph import ScheduleGraph
from collectives.schedule.scheduling_groups import ScheduleError
from collectives.schedule.timeline import Timeline, run_timeline
from collectives.schedule.window_costs import WindowCosts
from spmd.analysis.live_buffers import Buffer, LiveBuffers
from spmd.analysis.live_bytes import live_bytes
from spmd.hlo.instruction import HloInstruction

#: Rounds of passes with each preference; instructions that all passes place, after which no other one begins.
MOST_ROUNDS = 3
MOST_PLACED = 500_000
#: A round that saves less than this part of the time is the last.
WORTH_A_ROUND = 1e-3
#: Part of the time by which an order has to be better than the one that is there.
LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Memory:
    """Of one computation: inner: what callers need while they run; held: inputs that stay; limit: None for none."""

    buffers: LiveBuffers
    inner: Mapping[HloInstruction, int]
    held: Sequence[Buffer]
    limit: int | None

    def needs(self, order: Sequence[HloInstruction]) -> list[int]:
        return live_bytes(self.buffers, order, self.inner, self.held)

    def allows(self, order: Sequence[HloInstruction]) -> bool:
        return self.limit is None or max(self.needs(order), default=0) <= self.limit


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
        self._is_tight = False
        self._placed = 0
        self._paths = {backward: graph.paths(backward=backward) for backward in (True, False)}
        self._leads = {backward: graph.leads(backward=backward) for backward in (True, False)}

    def run(self) -> Found:
        """ScheduleError where scheduling groups cannot stay together."""
        if self._graph.has_blocks:
            self.best = self._with_blocks()
        if not self._graph.windows:
            return self.best
        tried: dict[tuple[bool, Preference], Found] = {}
        for _ in range(MOST_ROUNDS):
            before = self.best
            for backward, preference in product((True, False), Preference):
                # From the same order, a pass makes the same again.
                is_new = tried.get((backward, preference)) is not self.best
                if is_new and self._is_exposed() and self._placed < MOST_PLACED:
                    tried[backward, preference] = self.best
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
        """An order near ``rank`` that keeps to the limit. Bytes are counted once an order without has gone above it."""
        if not self._is_tight:
            nodes = self._order(rank, preference, backward=backward, counts=False)
            if nodes is None or self._memory.allows(self._graph.instructions(nodes)):
                return nodes
            self._is_tight = True
        nodes = self._order(rank, preference, backward=backward, counts=True)
        if nodes is None or not self._memory.allows(self._graph.instructions(nodes)):
            return None
        return nodes

    def _order(
        self, rank: Sequence[int], preference: Preference, *, backward: bool, counts: bool
    ) -> list[int] | None:
        ahead = rank
        if preference is not Preference.ORDER:
            ahead = self._by_path(rank, backward=backward)
        is_by_path = preference is Preference.PATHS
        priorities = Priorities(
            # Where bytes count, the turns have to be an order that keeps within the limit.
            turn=ahead if is_by_path and not counts else rank,
            work=ahead if is_by_path else rank,
            windows=ahead,
            leads=self._leads[backward] if preference is Preference.FEED else (),
        )
        self._placed += len(self._graph)
        headroom = partial(self._headroom, rank, backward=backward) if counts else None
        return ListScheduler(
            self._graph,
            priorities,
            self._costs.sharing,
            self._limits,
            backward=backward,
            make_headroom=headroom,
        ).run()

    def _headroom(self, rank: Sequence[int], turn: Sequence[int], *, backward: bool) -> Headroom:
        memory = self._memory
        assert memory.limit is not None
        make = BackwardTracker if backward else ForwardTracker
        tracker = make(memory.buffers, memory.inner, memory.held)
        order = self._graph.instructions(sorted(range(len(rank)), key=rank.__getitem__))
        needs = needs_by_turn(self._graph, turn, order, memory.needs(order))
        return Headroom(self._graph, turn, memory.buffers, tracker, needs, memory.limit)


def _places(nodes: Sequence[int]) -> list[int]:
    """For each node, where it stands."""
    places = [0] * len(nodes)
    for place, node in enumerate(nodes):
        places[node] = place
    return places
