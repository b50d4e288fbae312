"""Join collective-permutes along the same ways that do not wait for each other."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from collectives.passes.collective_permute_matching import match_permutes
from collectives.passes.combining import CollectiveCombiner, marks
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class CollectivePermuteCombiner(CollectiveCombiner):
    """Collective-permutes of the same sources and targets in one computation (see CollectiveCombiner).

    Shapes and element types may differ.
    """

    name: ClassVar[str] = "collective-permute-combiner"
    opcode: ClassVar[Opcode] = Opcode.COLLECTIVE_PERMUTE

    def key(self, x: HloInstruction) -> Hashable | None:
        permute = match_permutes(x)
        return (permute.ways, permute.mode, marks(x)) if permute is not None else None
