"""The best order of one computation among those that list scheduling makes from both ends.

A pass from the end fills waits with earlier work, one from the beginning with later work, and each stays near to the
order that it is given; so they take turns, as long as that helps (forward-backward improvement, Li and Willis 1992).
Orders are compared on the timeline; one that holds more bytes than there may be is none.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import product

from collectives.schedule.headroom import Headroom, needs_by_turn
from collectives.schedule.list_scheduler import ListScheduler, Priorities
from collectives.schedule.live_trackers import BackwardTracker, ForwardTracker
from collectives.schedule.overlap_limits import InFlight, OverlapLimits
from collectives.schedule.schedule_graph import NodeKind, ScheduleGraph
from collectives.schedule.scheduling_groups import ScheduleError
from collectives.schedule.timeline import Timeline, run_timeline
from collectives.schedule.window_costs import WindowCosts
from spmd.analysis.live_buffers import Buffer, LiveBuffers
from spmd.analysis.live_bytes import live_bytes
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass

#: Largest numbers of rounds of passes, of orders that a round begins with, and of instructions that all passes place
#: together.
MOST_ROUNDS = 3
MOST_ORDERS = 10
MOST_PLACED = 600_000
#: A round that saves less than this fraction of the time is the last one.
WORTH_A_ROUND = 1e-3
#: Orders that exceed the best time by at most this fraction count as equal to it, and may need less memory.
AS_LONG = 5e-4
#: Fraction of the time by which an order must be better than the current one.
LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Memory:
    """Memory of one computation.

    inner: by calling instruction, bytes of its callees while it runs.
    persistent: inputs that stay live throughout.
    limit: largest number of live bytes; None for no limit.
    """

    buffers: LiveBuffers
    inner: Mapping[HloInstruction, int]
    persistent: Sequence[Buffer]
    limit: int | None

    def needs(self, order: Sequence[HloInstruction]) -> list[int]:
        return live_bytes(self.buffers, order, self.inner, self.persistent)

    def allows(self, order: Sequence[HloInstruction]) -> bool:
        return self.limit is None or max(self.needs(order), default=0) <= self.limit


@dataclass(frozen=True)
class Found:
    """An order, with its predicted times. ``positions``: the position of each node."""

    order: Sequence[HloInstruction]
    timeline: Timeline
    positions: Sequence[int]

    def is_better(self, other: Found) -> bool:
        return self.timeline.seconds < other.timeline.seconds * (1 - LEAST_GAIN)


class Preference(Enum):
    """Rule that chooses among the nodes that may go next.

    ORDER: the first in the present order.
    WINDOW_PATHS: windows on the longest path first; work in the present order.
    PATHS: windows and work on the longest path first.
    FEED, FEED_PATHS: as WINDOW_PATHS and PATHS, but while nothing is in flight, work that leads to a window goes first.
    PATIENT: as PATHS, but work that would delay something of higher priority that may soon go on is not begun.
    """

    ORDER = "order"
    WINDOW_PATHS = "window paths"
    PATHS = "paths"
    FEED = "feed"
    FEED_PATHS = "feed paths"
    PATIENT = "patient"


class OrderSearch:
    """Search for the best order of ``graph``. ``stands``: the present order, which is within the memory limit."""

    def __init__(
        self,
        graph: ScheduleGraph,
        stands: Sequence[HloInstruction],
        costs: WindowCosts,
        limits: OverlapLimits,
        memory: Memory,
    ) -> None:
        self._graph, self._costs, self._limits, self._memory = graph, costs, limits, memory
        # Several transfers on one link slow each other down. If the result of one is needed soon, it should have the
        # link alone.
        alone = replace(limits, per_exchange=1)
        self._tried = (limits,) if limits.per_exchange == 1 else (limits, alone)
        self.best = Found(stands, run_timeline(stands, costs), range(len(graph)))
        self._made = {self.best.timeline.seconds: self.best}
        #: Results by order: most passes build an order that another pass has built.
        self._judged: dict[bytes, Found] = {}
        self._is_tight = False
        self._placed = 0
        self._paths = {backward: graph.paths(backward=backward) for backward in (True, False)}
        self._leads = {backward: graph.leads(backward=backward) for backward in (True, False)}

    def run(self) -> Found:
        """Return the best order. Raises ScheduleError if scheduling groups and limits of what is in flight cannot be
        kept.
        """
        if self._graph.has_blocks or not self._stands_apart():
            self.best = self._as_asked()
            self._made = {self.best.timeline.seconds: self.best}
        if not self._graph.windows:
            return self.best
        ranks = [self.best.positions]
        self._there_and_back()
        for number in range(MOST_ROUNDS):
            before = self.best.timeline.seconds
            ranks = self._round(ranks)
            saved = before - self.best.timeline.seconds
            if not self._is_exposed() or (number and saved <= WORTH_A_ROUND * before):
                break
        return self._smallest()

    def _there_and_back(self) -> None:
        """Try passes that keep as close as possible to the current order: these need least memory."""
        stands = self.best
        for backward in (True, False):
            found: Found | None = stands
            for direction in (backward, not backward):
                if found is not None and self._is_exposed():
                    positions = found.positions
                    found = self._try(positions, Preference.ORDER, self._limits, backward=direction)

    def _try(
        self,
        rank: Sequence[int],
        preference: Preference,
        limits: OverlapLimits,
        *,
        backward: bool,
    ) -> Found | None:
        """Run one pass. Its order becomes the best one if it is better."""
        nodes = self._pass(rank, preference, limits, backward=backward)
        if nodes is None:
            return None
        made = self._judge(nodes)
        self._made.setdefault(made.timeline.seconds, made)
        self.best = made if made.is_better(self.best) else self.best
        return made

    def _smallest(self) -> Found:
        """Return the best order. If memory is not limited, return the one that needs least memory among those that take
        about as long.
        """
        if self._memory.limit is not None:
            return self.best
        most = self.best.timeline.seconds * (1 + AS_LONG)
        fastest = [self._made[seconds] for seconds in sorted(self._made) if seconds <= most]
        return min(fastest[:MOST_ORDERS], key=lambda made: max(self._memory.needs(made.order)))

    def _round(self, ranks: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Run all passes from each of ``ranks``. Returns the best orders that they find, the fastest first."""
        found: dict[float, Sequence[int]] = {}
        for rank in ranks:
            for backward, preference, limits in product((True, False), Preference, self._tried):
                if not self._is_exposed() or self._placed >= MOST_PLACED:
                    break
                made = self._try(rank, preference, limits, backward=backward)
                if made is not None:
                    # Orders of equal time are mostly the same.
                    found.setdefault(made.timeline.seconds, made.positions)
        return [found[seconds] for seconds in sorted(found)[:MOST_ORDERS]]

    def _is_exposed(self) -> bool:
        """Return whether another order may be better than one that counts as equal (AS_LONG)."""
        timeline = self.best.timeline
        exposed = sum(span.exposed for span in timeline.spans)
        return exposed > AS_LONG * timeline.seconds

    def _stands_apart(self) -> bool:
        """Return whether the current order keeps the limits of what is in flight."""
        in_flight = InFlight(self._limits, self._costs.group_overlap)
        for node, kind in enumerate(self._graph.kinds):
            if kind is NodeKind.DONE:
                del in_flight.open[self._graph.window_of[node]]
                continue
            occupies = self._graph.occupies.get(node)
            if kind is NodeKind.START:
                occupies = self._graph.windows[self._graph.window_of[node]].communication
            if occupies and not in_flight.admits(occupies):
                return False
            if occupies and kind is NodeKind.START:
                in_flight.open[self._graph.window_of[node]] = occupies
        return True

    def _as_asked(self) -> Found:
        """Return an order close to the current one that keeps groups together and limits, at any cost in time."""
        nodes = self._pass(self.best.positions, Preference.ORDER, self._limits, backward=False)
        if nodes is None:
            limit = self._memory.limit
            within = f" within {limit:,} bytes" if limit is not None else ""
            name = self._memory.buffers.computation.name
            raise ScheduleError(
                f"no order of {name} was found that keeps scheduling groups together and obeys the limits of "
                f"collectives in flight{within}"
            )
        return self._judge(nodes)

    def _by_path(self, rank: Sequence[int], *, backward: bool) -> list[int]:
        """Return positions by the longest path to the end (backward: from the beginning), by ``rank`` among equals."""
        paths = self._paths[backward]
        sign = 1.0 if backward else -1.0
        return _positions(
            sorted(range(len(rank)), key=lambda node: (sign * paths[node], rank[node]))
        )

    def _judge(self, nodes: Sequence[int]) -> Found:
        key = array("q", nodes).tobytes()
        found = self._judged.get(key)
        if found is None:
            order = self._graph.instructions(nodes)
            found = Found(order, run_timeline(order, self._costs), _positions(nodes))
            self._judged[key] = found
        return found

    def _pass(
        self,
        rank: Sequence[int],
        preference: Preference,
        limits: OverlapLimits,
        *,
        backward: bool,
    ) -> list[int] | None:
        """Return an order close to ``rank`` within the memory limit. Bytes are counted only after an order without
        counting exceeded it.
        """
        if not self._is_tight:
            nodes = self._order(rank, preference, limits, backward=backward, counts=False)
            if nodes is None or self._memory.allows(self._graph.instructions(nodes)):
                return nodes
            self._is_tight = True
        nodes = self._order(rank, preference, limits, backward=backward, counts=True)
        if nodes is None or not self._memory.allows(self._graph.instructions(nodes)):
            return None
        return nodes

    def _order(
        self,
        rank: Sequence[int],
        preference: Preference,
        limits: OverlapLimits,
        *,
        backward: bool,
        counts: bool,
    ) -> list[int] | None:
        ahead = rank
        if preference is not Preference.ORDER:
            ahead = self._by_path(rank, backward=backward)
        is_by_path = preference in (Preference.PATHS, Preference.FEED_PATHS, Preference.PATIENT)
        priorities = Priorities(
            # If memory is limited, the turns must be an order that keeps the limit.
            turn=ahead if is_by_path and not counts else rank,
            work=ahead if is_by_path else rank,
            windows=ahead,
            leads=self._leads[backward]
            if preference in (Preference.FEED, Preference.FEED_PATHS)
            else (),
            patient=preference is Preference.PATIENT,
        )
        self._placed += len(self._graph)
        headroom = partial(self._headroom, rank, backward=backward) if counts else None
        return ListScheduler(
            self._graph,
            priorities,
            self._costs.group_overlap,
            limits,
            backward=backward,
            make_headroom=headroom,
        ).run()

    def _headroom(self, rank: Sequence[int], turn: Sequence[int], *, backward: bool) -> Headroom:
        memory = self._memory
        assert memory.limit is not None
        make = BackwardTracker if backward else ForwardTracker
        tracker = make(memory.buffers, memory.inner, memory.persistent)
        order = self._graph.instructions(sorted(range(len(rank)), key=rank.__getitem__))
        needs = needs_by_turn(self._graph, turn, order, memory.needs(order))
        return Headroom(self._graph, turn, memory.buffers, tracker, needs, memory.limit)


def _positions(nodes: Sequence[int]) -> list[int]:
    """Return the position of each node."""
    positions = [0] * len(nodes)
    for position, node in enumerate(nodes):
        positions[node] = position
    return positions
