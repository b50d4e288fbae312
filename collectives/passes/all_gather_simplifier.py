"""All-gathers and all-to-alls of groups with one member."""

from __future__ import annotations

from typing import ClassVar

from collectives.passes.groups import known_groups
from spmd.builder import ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at
from spmd.shape import ArrayShape


@register_pass
@dataclass(frozen=True)
class AllGatherSimplifier(Simplifier):
    """Replace an all-gather, or an all-to-all, over groups of one device by its operands."""

    name: ClassVar[str] = "all-gather-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_GATHER, Opcode.ALL_TO_ALL)

    def simplify(self, module: HloModule) -> Simplify:
        scope = ModuleScope(module)

        def simpler(x: HloInstruction) -> HloInstruction | None:
            groups = known_groups(x)
            if groups is None or groups.size != 1 or x.attrs_as(CollectiveAttrs).constrain_layout:
                return None
            if isinstance(x.shape, ArrayShape):
                return x.operand(0)
            return builder_at(x, scope).tuple(x.operands)

        return simpler
