"""Replace arrays without elements by empty constants."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.builder import ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at
from spmd.shape import ArrayShape

#: Opcodes that are not replaced. A call stands for its callee, such as the body of a manual region, until it is
#: inlined.
_NOT_REPLACED = (
    Opcode.PARAMETER,
    Opcode.CONSTANT,
    Opcode.BROADCAST,
    Opcode.GET_TUPLE_ELEMENT,
    Opcode.CALL,
)


@register_pass
@dataclass(frozen=True)
class ZeroSizedHloElimination(Simplifier):
    """f32[0,4] add(a, b)  =>  f32[0,4] broadcast(f32[] constant(0))"""

    name: ClassVar[str] = "zero-sized-hlo-elimination"

    def simplify(self, module: HloModule) -> Simplify:
        scope, effects = ModuleScope(module), SideEffects()

        def empty_constant(x: HloInstruction) -> HloInstruction | None:
            if not _is_empty(x) or effects.of(x):
                return None
            return builder_at(x, scope).full(x.array_shape, 0)

        return empty_constant


def _is_empty(x: HloInstruction) -> bool:
    if not isinstance(x.shape, ArrayShape) or x.opcode in _NOT_REPLACED:
        return False
    return x.shape.num_elements == 0 and not any(x.shape.dynamic)
