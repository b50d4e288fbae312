"""Latency hiding: order a scheduled module's computations so that its collectives overlap its work.

Callees come first, as a loop is work of its caller. Each computation is searched by itself (order_search.py) on a graph
of seconds and windows (schedule_graph.py). The new order is used if it is faster on the timeline than the present one.
If the present order is within the memory limit, so is the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from collectives.cost.estimator import Estimator
from collectives.schedule.group_overlap import GroupOverlap
from collectives.schedule.latency_report import CollectiveReport, LatencyReport
from collectives.schedule.order_search import Memory, OrderSearch
from collectives.schedule.overlap_limits import OverlapLimits
from collectives.schedule.phases import is_blocking
from collectives.schedule.schedule_graph import build_graph
from collectives.schedule.scheduling_groups import ScheduleError
from collectives.schedule.timeline import Timeline, run_timeline
from collectives.schedule.window_costs import WindowCosts
from spmd.analysis.executions import executions, summed_over_callees
from spmd.analysis.live_bytes import ModuleBytes
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode_roles import CALLERS
from spmd.lazy_dataclass import dataclass

Orders: TypeAlias = Mapping[HloComputation, Sequence[HloInstruction]]


@dataclass(frozen=True)
class LatencyOptions:
    """Options of the scheduler.

    limits: limits of the collectives in flight at a time.
    memory_limit: live bytes of a device; None for no limit.
    busy: by exchange, the fraction of the device that a transfer takes away from work.
    """

    limits: OverlapLimits = field(default_factory=OverlapLimits)
    memory_limit: int | None = None
    busy: Mapping[str, float] = field(default_factory=dict)


def schedule_for_latency(
    module: HloModule, estimator: Estimator, options: LatencyOptions | None = None
) -> LatencyReport:
    """Order every computation of a SCHEDULED module, in place. Raises ScheduleError if limits or
    groups cannot be kept.
    """
    if module.stage is not Stage.SCHEDULED:
        raise ScheduleError(f"{module.name} is {module.stage.name.lower()}, expected a schedule")
    return _Scheduling(module, estimator, options or LatencyOptions()).run()


@dataclass(frozen=True)
class _Arranged:
    """All computations in one order each. ``peak``: live bytes."""

    orders: Orders
    timelines: Mapping[HloComputation, Timeline]
    seconds: float
    peak: int


class _Scheduling:
    def __init__(self, module: HloModule, estimator: Estimator, options: LatencyOptions) -> None:
        self._module, self._options = module, options
        self._bytes = ModuleBytes.of(module)
        shares = not options.limits.apart
        self._costs = WindowCosts(estimator, GroupOverlap(module), options.busy, shares)
        self._computations = list(self._bytes.buffers)

    def run(self) -> LatencyReport:
        stands = self._as_it_is()
        free = chosen = self._arrange(stands, None)
        limit = self._options.memory_limit
        if limit is not None:
            chosen = self._within(limit, stands, free)
        crowded = self._with_more_in_flight(stands, chosen)
        self._put(chosen.orders)
        return self._report(stands, chosen, free, crowded)

    # ---- orders
    def _as_it_is(self) -> _Arranged:
        timelines = {}
        for computation in self._computations:
            timelines[computation] = run_timeline(computation.instructions, self._costs)
            self._costs.totals[computation] = timelines[computation].seconds
        return self._arranged(timelines)

    def _arranged(self, timelines: Mapping[HloComputation, Timeline]) -> _Arranged:
        return _Arranged(
            {computation: computation.instructions for computation in self._computations},
            timelines,
            timelines[self._module.entry].seconds,
            self._bytes.total,
        )

    def _put(self, orders: Orders) -> None:
        """Put every computation into its order."""
        for computation, order in orders.items():
            computation.set_order(order)
            self._bytes.look(computation)

    def _arrange(
        self, stands: _Arranged, limit: int | None, in_flight: OverlapLimits | None = None
    ) -> _Arranged:
        """Return the best orders found, starting from ``stands``, with at most ``limit`` live bytes. ``in_flight``:
        other limits of what is in flight.
        """
        limits = in_flight or self._options.limits
        self._put(stands.orders)
        budgets = {} if limit is None else self._bytes.budgets(limit)
        timelines = {}
        for computation in self._computations:
            buffers = self._bytes.buffers[computation]
            memory = Memory(
                buffers,
                self._bytes.inner_of(computation),
                self._bytes.persistent(computation),
                budgets.get(computation),
            )
            graph = build_graph(computation, self._costs, buffers)
            order = computation.instructions
            found = OrderSearch(graph, order, self._costs, limits, memory).run()
            computation.set_order(found.order)
            self._bytes.look(computation)
            timelines[computation] = found.timeline
            self._costs.totals[computation] = found.timeline.seconds
        return self._arranged(timelines)

    def _within(self, limit: int, stands: _Arranged, free: _Arranged) -> _Arranged:
        """Return orders within ``limit``. If the current orders exceed it, orders that need no more than these."""
        limit = max(limit, stands.peak)
        if free.peak <= limit:
            return free
        chosen = self._arrange(stands, limit)
        return chosen if chosen.peak <= limit else stands

    def _with_more_in_flight(self, stands: _Arranged, chosen: _Arranged) -> _Arranged:
        """Return the orders without other limits of what is in flight than that of one exchange."""
        limits = replace(self._options.limits, in_flight=0)
        if limits == self._options.limits or not any(_exposed(chosen).values()):
            return chosen
        limit = self._options.memory_limit
        room = None if limit is None else max(limit, stands.peak)
        return self._arrange(stands, room, limits)

    # ---- report
    def _report(
        self, stands: _Arranged, chosen: _Arranged, free: _Arranged, crowded: _Arranged
    ) -> LatencyReport:
        """Return the report. ``free``: the orders without the memory limit; ``crowded``: those with more in flight."""
        times = executions(self._module)
        exposed, unlimited, uncrowded = map(_exposed, (chosen, free, crowded))
        rows = []
        busy: dict[str, float] = {}
        for computation in self._computations:
            for span in sorted(chosen.timelines[computation].spans, key=lambda one: one.issued):
                x = span.collective
                runs = times[computation]
                for link in self._costs.time_of(x).links:
                    busy[link.exchange] = busy.get(link.exchange, 0.0) + runs * link.seconds
                rows.append(
                    CollectiveReport(
                        x.name,
                        runs,
                        self._costs.time_of(x).seconds,
                        exposed[x],
                        max(exposed[x] - unlimited[x], 0.0),
                        max(exposed[x] - uncrowded[x], 0.0),
                    )
                )
        return LatencyReport(
            seconds_before=stands.seconds,
            seconds=chosen.seconds,
            work=self._work(),
            communication=tuple(sorted(busy.items())),
            collectives=tuple(rows),
            peak_before=stands.peak,
            peak=chosen.peak,
            limits=self._options.limits,
            changed=any(
                list(chosen.orders[c]) != list(stands.orders[c]) for c in self._computations
            ),
        )

    def _work(self) -> float:
        """Return the seconds of the device's own instructions in one step; of a conditional, those of its slowest
        branch.
        """
        totals: dict[HloComputation, float] = {}
        for computation in self._computations:
            totals[computation] = 0.0
            for x in computation.instructions:
                if x.opcode in CALLERS:
                    inside = [totals[callee] for callee in x.called_computations]
                    totals[computation] += summed_over_callees(x, inside)
                elif not is_blocking(x):
                    totals[computation] += self._costs.seconds_of(x)
        return totals[self._module.entry]


def _exposed(arranged: _Arranged) -> dict[HloInstruction, float]:
    return {
        span.collective: span.exposed
        for timeline in arranged.timelines.values()
        for span in timeline.spans
    }
