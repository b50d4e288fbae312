"""RememberedEstimator: a cache of estimates, so that all parts of a simulation estimate each instruction once."""

from __future__ import annotations

from dataclasses import field

from collectives.cost.estimator import CollectiveTime, Estimator
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class RememberedEstimator:
    """An Estimator that caches the estimates of ``asked``. The module must not be changed while it is in use."""

    asked: Estimator
    _computed: dict[HloInstruction, float] = field(default_factory=dict)
    _collectives: dict[HloInstruction, CollectiveTime] = field(default_factory=dict)

    def compute(self, instruction: HloInstruction) -> float:
        if instruction not in self._computed:
            self._computed[instruction] = self.asked.compute(instruction)
        return self._computed[instruction]

    def collective(self, instruction: HloInstruction) -> CollectiveTime:
        if instruction not in self._collectives:
            self._collectives[instruction] = self.asked.collective(instruction)
        return self._collectives[instruction]

    def host_copy(self, instruction: HloInstruction) -> CollectiveTime | None:
        return self.asked.host_copy(instruction)
