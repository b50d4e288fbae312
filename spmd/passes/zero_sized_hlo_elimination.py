"""Replace arrays without elements by empty constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.passes.rewrite import has_control_edges, is_annotated, replace_and_prune
from spmd.shape import ArrayShape

#: A call stands for what it calls (the body of a manual region, perhaps) until it is inlined.
_KEPT = (Opcode.PARAMETER, Opcode.CONSTANT, Opcode.BROADCAST, Opcode.GET_TUPLE_ELEMENT, Opcode.CALL)


@register_pass
@dataclass(frozen=True)
class ZeroSizedHloElimination(FueledPass):
    """f32[0,4] add(a, b)  =>  f32[0,4] broadcast(f32[] constant(0))"""

    name: ClassVar[str] = "zero-sized-hlo-elimination"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope, effects = ModuleScope(module), SideEffects()
        changed = False
        for computation in module.computations_post_order():
            builder = Builder(computation, scope)
            for x in computation.post_order():
                if x.parent is not None and _is_empty(x) and not effects.of(x):
                    if fuel.is_spent:
                        return changed
                    fuel.burn()
                    replace_and_prune(x, builder.full(x.array_shape, 0), effects)
                    changed = True
        return changed


def _is_empty(x: HloInstruction) -> bool:
    if (
        not isinstance(x.shape, ArrayShape)
        or x.opcode in _KEPT
        or is_annotated(x)
        or has_control_edges(x)
    ):
        return False
    return x.shape.num_elements == 0 and not any(x.shape.dynamic)
