"""Join all-gathers of the same devices that do not wait for each other."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from collectives.passes.combining import CollectiveCombiner, marks
from collectives.passes.groups import known_groups
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class AllGatherCombiner(CollectiveCombiner):
    """All-gathers of one set of groups along one dimension in one computation (see CollectiveCombiner).

    Element types may differ: nothing is computed on the way.
    """

    name: ClassVar[str] = "all-gather-combiner"
    opcode: ClassVar[Opcode] = Opcode.ALL_GATHER

    def key(self, x: HloInstruction) -> Hashable | None:
        attrs = x.attrs_as(CollectiveAttrs)
        groups = known_groups(x)
        return (groups, attrs.dimension, marks(x)) if groups is not None else None
