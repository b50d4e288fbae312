"""Give slices their start as one scalar for each dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.passes.interface import UNSCHEDULED, HloPass, register_pass

#: Where the start stands among the operands.
_FIRST_INDEX = {Opcode.DYNAMIC_SLICE: 1, Opcode.DYNAMIC_UPDATE_SLICE: 2}


@register_pass
@dataclass(frozen=True)
class DynamicIndexSplitter(HloPass):
    """dynamic-slice(x, s32[2] i)  =>  dynamic-slice(x, i[0], i[1])

    The first is how older programs write it. No other pass, nor the runtime, knows but the second.
    """

    name: ClassVar[str] = "dynamic-index-splitter"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    def run(self, module: HloModule) -> bool:
        scope = ModuleScope(module)
        changed = False
        for computation in module.computations_post_order():
            builder = Builder(computation, scope)
            for x in computation.with_opcode(*_FIRST_INDEX):
                first = _FIRST_INDEX[x.opcode]
                if x.num_operands == first + 1 and x.operand(first).dims:
                    builder.annotations = Annotations(metadata=x.annotations.metadata)
                    x.set_operands([*x.operands[:first], *_scalars(x.operand(first), builder)])
                    changed = True
        return changed


def _scalars(indices: HloInstruction, b: Builder) -> list[HloInstruction]:
    (count,) = indices.dims
    return [b.reshape(b.slice(indices, (i,), (i + 1,)), ()) for i in range(count)]
