"""List scheduling of one computation around windows of collectives, from either end.

Seen from the end of the order, a done opens a window, which its start closes: the same algorithm runs in both
directions, on a clock of the device's work.

    while something is left:
        close a window whose collective is over
        else open the next window that may open, if it is its turn
        else run the next work that is ready and may overlap the collectives in flight
        else open a window ahead of its turn
        else wait for the first collective that ends

"Next" is by the order that is given: a schedule stays as near to it as it can, which is what keeps its memory low, and
only what would wait is overtaken. From the beginning, waits are filled with later work; from the end, with earlier
work. It is a window's turn where the order has it; at once, where that does not cost memory: a collective whose result
is larger than its operands is late (from the end: at once), one whose result is smaller is early.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from collectives.schedule.group_overlap import GroupOverlap
from collectives.schedule.headroom import Headroom
from collectives.schedule.links import QueuedLinks
from collectives.schedule.overlap_limits import InFlight, OverlapLimits
from collectives.schedule.schedule_graph import NodeKind, ScheduleGraph
from collectives.schedule.slowed_work import end_of_work
from collectives.schedule.window_costs import Communication
from spmd.lazy_dataclass import dataclass

#: Largest number of candidates that are examined if the first ones may not run; later ones seldom may, either.
_MOST_LOOKED_AT = 24
#: Fraction of an instruction's time that must pass before a window closes that the instruction must not delay.
_IN_TIME = 0.9


@dataclass(frozen=True)
class Priorities:
    """Priorities of the nodes, one number per node.

    turn: the node's position in the order to stay near to.
    work, windows: of the nodes that may run or open, the one with the smallest number goes first (backward: the
      largest).
    leads: seconds of work from the node to the nearest window (``ScheduleGraph.leads``). If given, the shortest way to
      a window is taken while nothing is in flight.
    patient: work that ends after the next window closes waits if what that window leads to has priority.
    """

    turn: Sequence[int]
    work: Sequence[int]
    windows: Sequence[int]
    leads: Sequence[float] = ()
    patient: bool = False


class ListScheduler:
    """Scheduler of one order of a graph. make_headroom: for the turns of this direction; None if
    memory is not limited.
    """

    def __init__(
        self,
        graph: ScheduleGraph,
        priorities: Priorities,
        group_overlap: GroupOverlap,
        limits: OverlapLimits,
        *,
        backward: bool,
        make_headroom: Callable[[Sequence[int]], Headroom] | None = None,
    ) -> None:
        count = len(graph)
        self._graph, self._backward = graph, backward
        self._before, self._after = (
            (graph.after, graph.before) if backward else (graph.before, graph.after)
        )
        self._opening = NodeKind.DONE if backward else NodeKind.START
        sign = -1 if backward else 1
        turn = (
            [count - 1 - position for position in priorities.turn] if backward else priorities.turn
        )
        self._work_key = [sign * position for position in priorities.work]
        self._window_key = [sign * position for position in priorities.windows]
        self._headroom = make_headroom(turn) if make_headroom is not None else None
        self._in_flight = InFlight(limits, group_overlap)
        self._links = QueuedLinks()
        self._left = [len(earlier) for earlier in self._before]
        self._order: list[int] = []
        self._now = 0.0
        self._ready_free: list[int] = []
        self._ready_work: list[tuple[int, int]] = []
        self._leads = priorities.leads
        self._patient = priorities.patient
        self._lead_queue: list[tuple[float, int, int]] = []
        self._placed = [False] * count
        #: Windows whose dependencies allow them to open: those whose turn has come, and those that a rule opens late.
        self._openings: list[tuple[int, int]] = []
        self._late: list[tuple[int, int]] = []
        self._ready_closings: list[tuple[float, int, int]] = []
        self._turns = _Turns(graph, turn)
        #: Whether an opening that was refused may be accepted now.
        self._look_again = True

    def run(self) -> list[int] | None:
        """Return the nodes in schedule order. Returns None if no order within all limits was found."""
        for node, left in enumerate(self._left):
            if not left:
                self._ready(node)
        while len(self._order) < len(self._graph):
            moved = (
                self._schedule_free()
                or self._close(self._now)
                or self._open()
                or self._work()
                or self._open_ahead()
                or self._wait()
                or self._work(whatever=True)
            )
            if not moved:
                return None
        return self._order[::-1] if self._backward else self._order

    # ---- steps, which return whether they placed a node
    def _schedule_free(self) -> bool:
        if not self._ready_free:
            return False
        while self._ready_free:
            self._schedule_node(self._ready_free.pop())
        return True

    def _close(self, until: float) -> bool:
        """Close the first window that is over by ``until``, if memory allows. Returns whether one was closed."""
        if not self._ready_closings or self._ready_closings[0][0] > until:
            return False
        end, _, node = self._ready_closings[0]
        if not self._fits(node):
            return False
        heapq.heappop(self._ready_closings)
        self._now = max(self._now, end)
        self._close_window(node)
        return True

    def _close_window(self, node: int) -> None:
        del self._in_flight.open[self._graph.window_of[node]]
        self._look_again = True
        self._schedule_node(node)

    def _open(self) -> bool:
        """Open the first window that may open, among those whose turn it is. Returns whether one was opened."""
        while self._late and self._turns.is_due(self._late[0][1]):
            _, node = heapq.heappop(self._late)
            self._add_opening(node)
        if not self._look_again:
            return False
        if self._open_first(self._openings):
            return True
        # An opening that memory refuses may be accepted after any step; other refusals end when a window closes.
        self._look_again = self._headroom is not None
        return False

    def _add_opening(self, node: int) -> None:
        heapq.heappush(self._openings, (self._window_key[node], node))
        self._look_again = True

    def _open_ahead(self) -> bool:
        """Open any window, ahead of its turn, since nothing else is possible. Returns whether one was opened."""
        return self._open_first(self._openings) or self._open_first(self._late)

    def _open_first(self, openings: list[tuple[int, int]]) -> bool:
        found = self._pop_first(openings, self._may_open)
        if found is not None:
            self._open_window(found)
        return found is not None

    def _pop_first(self, heap: list[tuple[int, int]], may: Callable[[int], bool]) -> int | None:
        """Remove and return the first of the next nodes of ``heap`` that may be placed; None if there is none."""
        passed: list[tuple[int, int]] = []
        found = None
        while heap and len(passed) < _MOST_LOOKED_AT:
            entry = heapq.heappop(heap)
            if self._placed[entry[1]]:  # placed to reach a window
                continue
            if may(entry[1]):
                found = entry[1]
                break
            passed.append(entry)
        for entry in passed:
            heapq.heappush(heap, entry)
        return found

    def _is_early(self, node: int) -> bool:
        """Return whether the window opens as soon as it can."""
        grows = self._graph.windows[self._graph.window_of[node]].grows
        return grows >= 0 if self._backward else grows <= 0

    def _may_open(self, node: int) -> bool:
        window = self._graph.windows[self._graph.window_of[node]]
        return self._in_flight.admits(window.communication) and self._fits(node)

    def _open_window(self, node: int) -> None:
        number = self._graph.window_of[node]
        window = self._graph.windows[number]
        self._links.open(number, window.transfer, self._now)
        self._in_flight.open[number] = window.communication
        self._schedule_node(node)

    def _work(self, *, whatever: bool = False) -> bool:
        found = self._feed() if self._leads and not self._in_flight.open else None
        if found is None:
            may_run = self._may_run if whatever or not self._patient else self._may_run_now
            found = self._pop_first(self._ready_work, may_run)
        if found is None:
            return False
        self._now = self._end_of(found)
        self._schedule_node(found)
        return True

    def _feed(self) -> int | None:
        """Return the next node on the shortest way to a window, None if it may not run."""
        while self._lead_queue and self._placed[self._lead_queue[0][2]]:
            heapq.heappop(self._lead_queue)
        if not self._lead_queue or not self._may_run(self._lead_queue[0][2]):
            return None
        return heapq.heappop(self._lead_queue)[2]

    def _may_run(self, node: int) -> bool:
        occupies = self._graph.occupies.get(node, Communication())
        if occupies and not self._in_flight.admits(occupies):
            return False
        return self._fits(node)

    def _may_run_now(self, node: int) -> bool:
        """Return whether ``node`` may run, and need not wait for a window that is about to end."""
        if self._ready_closings:
            end, _, closing = self._ready_closings[0]
            over = self._now + _IN_TIME * (self._end_of(node) - self._now)
            if over > end and self._work_key[closing] < self._work_key[node]:
                return False
            if over > end and self._delays_window(node, over, end):
                return False
        return self._may_run(node)

    def _delays_window(self, node: int, over: float, end: float) -> bool:
        """Return whether ``node``, which would run until ``over``, would leave a link idle for which a window of higher
        priority waits.

        ``end``: the end of the window that is over first, after which that one may open.
        """
        if not self._openings or self._work_key[self._openings[0][1]] >= self._work_key[node]:
            return False
        window = self._graph.windows[self._graph.window_of[self._openings[0][1]]]
        return over > max(end, self._links.free_at(window.transfer))

    def _end_of(self, node: int) -> float:
        """Return the end of work that begins now."""
        active_transfers = self._links.active_transfers(self._now)
        return end_of_work(self._now, self._graph.seconds[node], active_transfers)

    def _wait(self) -> bool:
        """Wait for the window that is over first and close it. Nodes that wait for memory may run afterwards."""
        if not self._ready_closings:
            return False
        return self._close(self._ready_closings[0][0])

    # ---- bookkeeping
    def _fits(self, node: int) -> bool:
        return self._headroom is None or self._headroom.allows(node, self._turns.next)

    def _schedule_node(self, node: int) -> None:
        self._order.append(node)
        self._placed[node] = True
        if self._headroom is not None:
            self._headroom.advance(node, self._turns.next)
        self._turns.mark_opened(node)
        for later in self._after[node]:
            self._left[later] -= 1
            if not self._left[later]:
                self._ready(later)

    def _ready(self, node: int) -> None:
        kind = self._graph.kinds[node]
        if kind is NodeKind.FREE:
            self._ready_free.append(node)
        elif kind is NodeKind.WORK:
            heapq.heappush(self._ready_work, (self._work_key[node], node))
            if self._leads and self._leads[node] < float("inf"):
                heapq.heappush(self._lead_queue, (self._leads[node], self._work_key[node], node))
        elif kind is self._opening:
            if self._is_early(node):
                self._add_opening(node)
            else:
                heapq.heappush(self._late, (self._turns.of[node], node))
        else:
            _, end = self._links.span(self._graph.window_of[node])
            heapq.heappush(self._ready_closings, (end, self._turns.of[node], node))


class _Turns:
    """Progress of an order. ``of[n]``: the turn of node n. ``next``: the first turn that has not been taken."""

    def __init__(self, graph: ScheduleGraph, of: Sequence[int]) -> None:
        self.of = of
        self.next = 0
        self._node = sorted(range(len(of)), key=of.__getitem__)
        self._taken = [False] * len(of)
        self._is_work = [graph.kinds[node] is NodeKind.WORK for node in self._node]
        self._next_work = 0
        self._advance()

    def mark_opened(self, node: int) -> None:
        self._taken[self.of[node]] = True
        self._advance()

    def _advance(self) -> None:
        taken, count = self._taken, len(self._taken)
        while self.next < count and taken[self.next]:
            self.next += 1
        while self._next_work < count and (
            taken[self._next_work] or not self._is_work[self._next_work]
        ):
            self._next_work += 1

    def is_due(self, node: int) -> bool:
        """Return whether all work before the node has run."""
        return self.of[node] < self._next_work
