"""One device's time on an order of instructions: a stream of work, which runs in that order, and a port per exchange.

Work is slower while a collective takes a part of the device away. A start takes no time; its collective begins when the
ports of its exchanges are free, or shares them (links.py), and its done waits for the end. All devices run the same
program at the same speed here: what lies between devices is the simulator's.

    work    | dot a |  dot b  | wait |  dot c          wait: what is exposed of s
    nvlink          |------- s ------|
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives.schedule.links import Links
from collectives.schedule.phases import is_blocking, is_done, is_start
from collectives.schedule.slowed_work import end_of_work
from collectives.schedule.window_costs import WindowCosts
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveSpan:
    """One collective in one execution of its computation. Times are seconds from the computation's beginning.

    collective: its start, or itself if it blocks.
    issued: when its start runs.
    begun: when its ports were free.
    exposed: seconds that the device waited at its done.
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
        """The hidden part of its own seconds, which do not include waiting for a port."""
        return max(self.seconds - self.exposed, 0.0)


@dataclass(frozen=True)
class Timeline:
    """Predicted times of an order.

    seconds: until the last instruction is over and no collective is in flight.
    """

    seconds: float
    spans: tuple[CollectiveSpan, ...]


def run_timeline(order: Sequence[HloInstruction], costs: WindowCosts) -> Timeline:
    """Return the longest timeline of those on ``costs.links()``. ``order``: of one computation, whose callees have
    their totals.
    """
    return max((_on(links, order, costs) for links in costs.links()), key=lambda one: one.seconds)


def _on(links: Links, order: Sequence[HloInstruction], costs: WindowCosts) -> Timeline:
    now = 0.0
    issued: dict[HloInstruction, float] = {}
    spans: list[CollectiveSpan] = []
    for x in order:
        if is_start(x):
            links.open(x, costs.transfer_of(x), now)
            issued[x] = now
        elif is_done(x):
            start = x.operand(0)
            begun, ended = links.span(start)
            exposed = max(ended - now, 0.0)
            spans.append(CollectiveSpan(start, issued.pop(start), begun, ended, exposed))
            now += exposed
        elif is_blocking(x):
            links.open(x, costs.transfer_of(x), now)
            begun, ended = links.span(x)
            spans.append(CollectiveSpan(x, now, begun, ended, ended - now))
            now = ended
        else:
            now = end_of_work(now, costs.seconds_of(x), links.active_transfers(now))
    return Timeline(now, tuple(spans))
