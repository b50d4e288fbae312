"""Lower bound of the seconds of a step for any order of its instructions, and thus for any scheduler.

compute          a device runs one kernel at a time
busiest link     a device sends at most at the rates of its links
critical path    operands precede users; collectives take their time on free links; a loop's trips are sequential
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import field

from collectives.cost.estimator import Estimator
from collectives.schedule.phases import is_blocking, is_done, is_start
from spmd.analysis.executions import counted_trips
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.opcode_roles import wrapped
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bound of the seconds of one execution of a computation.

    compute: seconds of its kernels.
    links: by exchange, the seconds for which it is busy.
    path: seconds of the critical path.
    """

    compute: float = 0.0
    links: Mapping[str, float] = field(default_factory=dict)
    path: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the largest of the limits."""
        return max(self.compute, self.path, *self.links.values(), 0.0)

    @property
    def what(self) -> str:
        """Return the name of the largest limit: "compute", "critical path" or an exchange."""
        reasons = [
            (self.compute, "compute"),
            (self.path, "critical path"),
            *((seconds, name) for name, seconds in self.links.items()),
        ]
        return max(reasons, key=lambda reason: reason[0])[1]

    def then(self, other: Bound, times: int = 1) -> Bound:
        """Return the bound of this computation followed by ``times`` executions of ``other``."""
        links = dict(self.links)
        for name, seconds in other.links.items():
            links[name] = links.get(name, 0.0) + times * seconds
        return Bound(self.compute + times * other.compute, links, self.path + times * other.seconds)


class Bounds:
    """Bounds of computations for one device, each computed once.

    branches: the branches that conditionals are assumed to run.
    absent: collectives in which the device takes no part.
    """

    def __init__(
        self,
        estimator: Estimator,
        branches: Mapping[HloInstruction, HloComputation],
        absent: Container[HloInstruction] = (),
    ) -> None:
        self._absent = absent
        self._estimator = estimator
        self._branches = branches
        self._known: dict[HloComputation, Bound] = {}

    def of(self, computation: HloComputation) -> Bound:
        """Return the bound of one execution of ``computation``."""
        if computation not in self._known:
            self._known[computation] = self._find(computation)
        return self._known[computation]

    def of_instruction(self, x: HloInstruction) -> Bound:
        """Return the bound of one execution of ``x``, callees included. Its critical path is its own duration."""
        if x.opcode is Opcode.WHILE:
            condition = self.of(x.while_condition)
            trip = Bound().then(self.of(x.while_body)).then(condition)
            return Bound().then(condition).then(trip, counted_trips(x))
        if x.opcode is Opcode.CONDITIONAL:
            return self.of(self._branches[x])
        if x.opcode is Opcode.CALL:
            return self.of(x.to_apply)
        if x in self._absent or is_done(x):
            return Bound()
        is_collective = is_start(x) or is_blocking(x)
        time = self._estimator.collective(x) if is_collective else self._estimator.host_copy(x)
        if time is not None:
            links: dict[str, float] = {}
            for link in time.links:
                links[link.exchange] = links.get(link.exchange, 0.0) + link.seconds
            return Bound(0.0, links, time.seconds)
        seconds = self._estimator.compute(wrapped(x))
        return Bound(seconds, {}, seconds)

    def _find(self, computation: HloComputation) -> Bound:
        """Return the bound of a computation: the sums over its instructions, and the longest path through them."""
        end: dict[HloInstruction, float] = {}
        total = Bound()
        for x in computation.instructions:
            own = self.of_instruction(x)
            before = (end[y] for y in (*x.operands, *x.control_predecessors))
            end[x] = max(before, default=0.0) + own.path
            if own.compute or own.links:
                total = total.then(own)
        return Bound(total.compute, total.links, max(end.values(), default=0.0))
