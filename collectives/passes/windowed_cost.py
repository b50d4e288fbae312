"""Gain of computing a product and its collective in parts, by a machine's description."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from collectives.cost.independence import independent_seconds
from collectives.cost.intervals import Interval, shared
from collectives.cost.roofline import RooflineEstimator
from collectives.schedule.overlap_limits import OverlapLimits
from spmd.analysis.executions import summed_over_callees
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import CALLERS
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.shape import ArrayShape

#: Ops that are long enough to overlap a collective and whose cost does not depend on fusion.
PRODUCTS = (Opcode.DOT, Opcode.CONVOLUTION, Opcode.RAGGED_DOT, Opcode.SCALED_DOT)


@dataclass(frozen=True, slots=True)
class WindowedSavings:
    """Seconds of a product and its collective: one after the other, and in parts whose communication overlaps
    computation. ``product``: name of the instruction.
    """

    product: str
    unsplit: float
    parts: float

    @property
    def saved(self) -> float:
        return self.unsplit - self.parts

    @property
    def share(self) -> float:
        """Return the saved fraction of the time; below 0 for a loss."""
        return 1.0 - self.parts / self.unsplit if self.unsplit else 0.0


class WindowedCostModel:
    """Costs of windows of a program on ``machine``."""

    def __init__(self, module: HloModule, machine: MachineDescription) -> None:
        self._estimator = RooflineEstimator.of(module, machine, unknown_by_bytes=True)
        self._busy = machine.busy
        self._concurrent = OverlapLimits.on(machine).per_exchange
        self._products: dict[HloComputation, float] = {}

    def needing(
        self, computation: HloComputation, collectives: Sequence[HloInstruction]
    ) -> list[HloInstruction]:
        """Return the collectives for which a scheduler finds too little other work: products that neither need them nor
        are needed.

        Other work is not counted, as much of it will be fused. If sending takes longer than computing, collectives
        between products that wait for each other, such as those of successive layers, share the work that can overlap
        them: it has to suffice for all. A collective that only waits for a product may be early, one that no product
        waits for may be late.
        """
        independent = independent_seconds(computation, collectives, self._product_seconds)
        wanted = {x: self._estimator.collective(x).seconds for x in collectives}
        if sum(wanted.values()) > self._products_in(computation):
            wanted |= self._chained(computation, wanted)
        return [x for x in collectives if independent[x] < wanted[x]]

    def _chained(
        self, computation: HloComputation, seconds: Mapping[HloInstruction, float]
    ) -> dict[HloInstruction, float]:
        """Return for each collective between products its ``seconds`` and those of collectives that depend on it or on
        which it depends."""
        between = {x: seconds[x] for x in self._between_products(computation, seconds)}
        total = sum(between.values())
        apart = independent_seconds(computation, list(between), lambda x: between.get(x, 0.0))
        return {x: total - apart[x] for x in between}

    def _between_products(
        self, computation: HloComputation, collectives: Iterable[HloInstruction]
    ) -> list[HloInstruction]:
        """Return the collectives that depend on a product and on which a product or another collective depends."""
        order = computation.post_order()
        behind: set[HloInstruction] = set()
        for x in order:
            if any(y in behind or self._product_seconds(y) > 0.0 for y in x.operands):
                behind.add(x)
        ends = set(collectives)
        ahead: set[HloInstruction] = set()
        for x in reversed(order):
            if any(y in ahead or y in ends or self._product_seconds(y) > 0.0 for y in x.users):
                ahead.add(x)
        return [x for x in collectives if x in behind and x in ahead]

    def _product_seconds(self, x: HloInstruction) -> float:
        """Return the seconds of a product, or of those in a loop, branch or call; of branches, the most expensive."""
        if x.opcode in PRODUCTS:
            return self._estimator.compute(x)
        if x.opcode in CALLERS:
            inside = [self._products_in(callee) for callee in x.called_computations]
            return summed_over_callees(x, inside)
        return 0.0

    def _products_in(self, computation: HloComputation) -> float:
        known = self._products.get(computation)
        if known is None:
            known = sum(map(self._product_seconds, computation.instructions))
            self._products[computation] = known
        return known

    def gain(
        self,
        dot: HloInstruction,
        collective: HloInstruction,
        parts: Iterable[HloInstruction],
    ) -> WindowedSavings:
        """Return the savings if ``parts``, in the order in which they were written, replace both."""
        unsplit = self._estimator.compute(dot) + self._estimator.collective(collective).seconds
        return WindowedSavings(dot.name, unsplit, self.seconds(parts, _is_kernel))

    def kernel(self, x: HloInstruction) -> float:
        """Return the seconds of ``x`` as a kernel of its own."""
        return self._estimator.compute(x)

    def sending(self, collectives: Iterable[HloInstruction]) -> float:
        """Return the sum of the seconds of the collectives."""
        return sum(self._estimator.collective(x).seconds for x in collectives)

    def computing(self, members: Iterable[HloInstruction]) -> float:
        """Return the sum of the seconds of the products."""
        return sum(self._product_seconds(x) for x in members)

    def seconds(
        self, made: Iterable[HloInstruction], share: Callable[[HloInstruction], float]
    ) -> float:
        """Return the seconds of the parts. They are sent as soon as they exist and the link is free, and computed in
        their order. While data is sent, computation is slowed down; during latencies it is not.

        ``share``: the fraction of an instruction's time as a kernel that it adds to a fused program.
        """
        ready: dict[HloInstruction, float] = {}
        ends = [0.0] * self._concurrent
        computing = sending = slowed = 0.0
        worked: list[Interval] = []
        moved: list[Interval] = []
        for x in made:
            begin = max((ready.get(operand, 0.0) for operand in x.operands), default=0.0)
            if x.opcode in KIND:
                time = self._estimator.collective(x)
                begin = max(begin, sending, ends[-self._concurrent])
                sending = begin + max((link.seconds for link in time.links), default=0.0)
                ready[x] = begin + time.seconds
                ends.append(ready[x])
                moved.append((begin, sending))
                slowed = max([slowed, *(self._busy[link.exchange] for link in time.links)])
            else:
                left = share(x)
                seconds = left * self._estimator.compute(x) if left else 0.0
                begin = max(begin, computing)
                ready[x] = computing = begin + seconds
                worked.append((begin, computing))
        return max(ready.values(), default=0.0) + slowed * shared(worked, moved)


def _is_kernel(x: HloInstruction) -> bool:
    """Return whether ``x`` is an array. Scalars, such as offsets, become part of the kernels that read them."""
    return isinstance(x.shape, ArrayShape) and bool(x.dims)
