"""What it gains to do a product and its collective in parts, as a machine's description has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collectives.cost.roofline import RooflineEstimator
from spmd.analysis.wire import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.machine.description import MachineDescription
from spmd.shape import ArrayShape


@dataclass(frozen=True, slots=True)
class WindowGain:
    """Seconds of product and collective one after the other, and in parts, of which communication and computation run
    side by side. product: the instruction's name.
    """

    product: str
    whole: float
    parts: float

    @property
    def share(self) -> float:
        """Of the whole, what is gained; below 0 where it is lost."""
        return 1.0 - self.parts / self.whole if self.whole else 0.0


class WindowPrices:
    """Of a program on ``machine``."""

    def __init__(self, module: HloModule, machine: MachineDescription) -> None:
        self._estimator = RooflineEstimator.of(module, machine)
        self._busy = {way.name: way.busy for way in machine.exchanges}

    def gain(
        self,
        dot: HloInstruction,
        collective: HloInstruction,
        parts: Iterable[HloInstruction],
    ) -> WindowGain:
        """parts: what is to take the place of both, in the order in which it was written."""
        whole = self._estimator.compute(dot) + self._estimator.collective(collective).seconds
        return WindowGain(dot.name, whole, self._seconds(parts))

    def _seconds(self, made: Iterable[HloInstruction]) -> float:
        """Parts are sent as soon as they are there and the link is free, and computed in their order."""
        ready: dict[HloInstruction, float] = {}
        computing = sending = computed = sent = slowed = 0.0
        for x in made:
            begin = max((ready.get(operand, 0.0) for operand in x.operands), default=0.0)
            if x.opcode in KIND:
                time = self._estimator.collective(x)
                begin = max(begin, sending)
                ready[x] = begin + time.seconds
                sending = begin + max((link.seconds for link in time.links), default=0.0)
                sent += time.seconds
                slowed = max([slowed, *(self._busy[link.exchange] for link in time.links)])
            else:
                seconds = self._estimator.compute(x) if _is_kernel(x) else 0.0
                ready[x] = computing = max(begin, computing) + seconds
                computed += seconds
        end = max(ready.values(), default=0.0)
        hidden = max(computed + sent - end, 0.0)
        return end + slowed * hidden


def _is_kernel(x: HloInstruction) -> bool:
    """Scalars, such as offsets, become part of the kernels that read them."""
    return isinstance(x.shape, ArrayShape) and bool(x.dims)
