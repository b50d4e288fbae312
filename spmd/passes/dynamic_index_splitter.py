"""Give slices their start as one scalar for each dimension."""

from __future__ import annotations

from typing import ClassVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at

#: Index of the first start among the operands.
_FIRST_INDEX = {Opcode.DYNAMIC_SLICE: 1, Opcode.DYNAMIC_UPDATE_SLICE: 2}


@register_pass
@dataclass(frozen=True)
class DynamicIndexSplitter(InstructionPass):
    """dynamic-slice(x, s32[2] i)  =>  dynamic-slice(x, i[0], i[1])

    The first is how older programs write it. No other pass, nor the runtime, knows but the second.
    """

    name: ClassVar[str] = "dynamic-index-splitter"
    opcodes: ClassVar[tuple[Opcode, ...]] = tuple(_FIRST_INDEX)

    def editor(self, module: HloModule) -> Edit:
        scope = ModuleScope(module)

        def edit(x: HloInstruction) -> bool:
            first = _FIRST_INDEX[x.opcode]
            if x.num_operands != first + 1 or not x.operand(first).dims:
                return False
            starts = _scalars(x.operand(first), builder_at(x, scope))
            x.set_operands([*x.operands[:first], *starts])
            return True

        return edit


def _scalars(indices: HloInstruction, b: Builder) -> list[HloInstruction]:
    (count,) = indices.dims
    return [b.reshape(b.slice(indices, (i,), (i + 1,)), ()) for i in range(count)]
