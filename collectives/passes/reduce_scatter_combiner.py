"""Join reduce-scatters of the same devices that do not wait for each other."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from collectives.passes.combining import CollectiveCombiner
from collectives.passes.reducing import reducing
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class ReduceScatterCombiner(CollectiveCombiner):
    """Reduce-scatters of one reducer, element type and set of groups in one computation (see CollectiveCombiner)."""

    name: ClassVar[str] = "reduce-scatter-combiner"
    opcode: ClassVar[Opcode] = Opcode.REDUCE_SCATTER

    def key(self, x: HloInstruction) -> Hashable | None:
        return reducing(x)
