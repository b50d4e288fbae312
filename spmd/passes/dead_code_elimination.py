"""Remove what nobody uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.hlo.module import HloModule, Stage
from spmd.passes.interface import UNSCHEDULED, HloPass, register_pass


@register_pass
@dataclass(frozen=True)
class DeadCodeElimination(HloPass):
    """Remove instructions without users (but parameters, roots and side effects), then computations without callers."""

    name: ClassVar[str] = "dead-code-elimination"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    def run(self, module: HloModule) -> bool:
        effects = SideEffects()
        removed = 0
        for computation in module.computations_post_order():
            removed += computation.remove_unused(keep=effects.of)
        return bool(removed + module.remove_unreachable_computations())
