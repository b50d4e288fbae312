"""One device's time on an order of instructions: a stream of work, which runs in that order, and a port per exchange.

Work is slower while a collective takes a part of the device away. A start takes no time; its collective begins when the
ports of its exchanges are free, and its done waits for the end. All devices run the same program at the same speed
here: what lies between devices is the simulator's.

    work    | dot a |  dot b  | wait |  dot c          wait: what is exposed of s
    nvlink          |------- s ------|
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectives.schedule.phases import is_blocking, is_done, is_start
from collectives.schedule.slowed_work import Flight, end_of_work
from collectives.schedule.window_costs import WindowCosts
from spmd.hlo.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class CollectiveSpan:
    """One collective in one run of its computation; seconds from the computation's begin.

    collective: its start, or itself where it blocks. issued: where its start stands. begun: when its ports were free.
    exposed: how long the device waited at its done.
    """

    collective: HloInstruction
    issued: float
    begun: float
    ended: float
    exposed: float

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    @property
    def hidden(self) -> float:
        """Of its own seconds; waiting for a port is no part of them."""
        return max(self.seconds - self.exposed, 0.0)


@dataclass(frozen=True)
class Timeline:
    """seconds: until the last instruction is over and no collective is in flight. work: of these, the device's own."""

    seconds: float
    work: float
    spans: tuple[CollectiveSpan, ...]


def run_timeline(order: Sequence[HloInstruction], costs: WindowCosts) -> Timeline:
    """``order``: of one computation, whose callees have their totals."""
    now = work = 0.0
    flights: list[Flight] = []
    free: dict[str, float] = {}
    pending: dict[HloInstruction, tuple[float, float, float]] = {}
    spans: list[CollectiveSpan] = []
    for x in order:
        if is_start(x):
            begun, ended = _occupy(x, costs, free, now)
            pending[x] = now, begun, ended
            load = costs.load_of(link.exchange for link in costs.time_of(x).links)
            flights = [one for one in flights if one.ended > now]
            flights.append(Flight(begun, ended, load))
        elif is_done(x):
            issued, begun, ended = pending.pop(x.operand(0))
            exposed = max(ended - now, 0.0)
            spans.append(CollectiveSpan(x.operand(0), issued, begun, ended, exposed))
            now += exposed
        elif is_blocking(x):
            begun, ended = _occupy(x, costs, free, now)
            spans.append(CollectiveSpan(x, now, begun, ended, ended - now))
            now = ended
        else:
            seconds = costs.seconds_of(x)
            now = end_of_work(now, seconds, flights)
            work += seconds
    return Timeline(now, work, tuple(spans))


def _occupy(
    x: HloInstruction, costs: WindowCosts, free: dict[str, float], now: float
) -> tuple[float, float]:
    """When the collective of ``x`` begins and ends; its ports are taken meanwhile."""
    time = costs.time_of(x)
    begun = max([now, *(free.get(link.exchange, 0.0) for link in time.links)])
    for link in time.links:
        free[link.exchange] = begun + link.seconds
    return begun, begun + time.seconds
