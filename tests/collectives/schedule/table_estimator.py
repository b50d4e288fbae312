"""An estimator that reads seconds from a table, and takes what it does not find there from a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from collectives.cost.estimator import CollectiveTime, LinkUse
from spmd.hlo import HloInstruction, Opcode

_NO_KERNELS = frozenset(
    {
        Opcode.PARAMETER,
        Opcode.CONSTANT,
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.BITCAST,
    }
)


def one_second(_: HloInstruction) -> float:
    return 1.0


@dataclass(frozen=True)
class TableEstimator:
    """seconds: by instruction name; a collective that has been split goes by the name before it was.

    exchange: the one circle of the machine, or one for each name in ``exchanges``. latencies: by name, of a collective's
    seconds those in which its link is free.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    otherwise: Callable[[HloInstruction], float] = one_second
    exchanges: Mapping[str, str] = field(default_factory=dict)
    latencies: Mapping[str, float] = field(default_factory=dict)

    def compute(self, instruction: HloInstruction) -> float:
        if instruction.opcode in _NO_KERNELS:
            return 0.0
        return self._of(instruction)

    def host_copy(self, instruction: HloInstruction) -> CollectiveTime | None:
        return None

    def collective(self, instruction: HloInstruction) -> CollectiveTime:
        seconds = self._of(instruction)
        name = instruction.name.replace("-start", "")
        busy = seconds - min(self.latencies.get(name, 0.0), seconds)
        link = LinkUse(self.exchanges.get(name, "link"), busy, busy)
        return CollectiveTime(seconds, "ring", (link,), seconds - busy)

    def _of(self, instruction: HloInstruction) -> float:
        name = instruction.name.replace("-start", "")
        return self.seconds[name] if name in self.seconds else self.otherwise(instruction)


def random_estimator(rng: np.random.Generator) -> TableEstimator:
    """Another number of seconds for each instruction, whatever is asked first; one of two exchanges."""
    seconds: dict[str, float] = {}
    exchanges: dict[str, str] = {}
    latencies: dict[str, float] = {}

    def otherwise(x: HloInstruction) -> float:
        return seconds.setdefault(x.name, float(rng.exponential(2.0)))

    if rng.random() < 0.5:
        exchanges.update({f"all-reduce.{n}": "other" for n in range(9)})
    if rng.random() < 0.5:
        names = (f"{kind}.{n}" for kind in ("all-reduce", "all-gather") for n in range(9))
        latencies.update({name: float(rng.exponential(1.0)) for name in names})
    return TableEstimator({}, otherwise, exchanges, latencies)
