"""Remove instructions without users and side effects."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class DeadCodeElimination(FueledPass):
    """Remove instructions without users (but parameters, roots and side effects), then computations without callers."""

    name: ClassVar[str] = "dead-code-elimination"

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        effects = SideEffects()

        def keep(x: HloInstruction) -> bool:
            if fuel.is_spent or effects.of(x):
                return True
            fuel.burn()
            return False

        changed = False
        for computation in module.computations_post_order():
            changed |= computation.remove_unused(keep) > 0
        if not fuel.is_spent and module.remove_unreachable_computations():
            fuel.burn()
            changed = True
        return changed
