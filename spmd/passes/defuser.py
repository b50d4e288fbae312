"""Replace fusions by the instructions that were fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.passes.call_inliner import call_sites, inline_in
from spmd.passes.interface import HloPass, register_pass


@register_pass
@dataclass(frozen=True)
class Defuser(HloPass):
    """Open every ``fusion``, innermost first. The instructions stand where the fusion stood: a schedule stays one.

    What fuses programs is this project's own cost model; another compiler's choice is no reason to fuse.
    """

    name: ClassVar[str] = "defuser"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def run(self, module: HloModule) -> bool:
        reachable = module.computations_post_order()
        sites = call_sites(reachable)
        changed = False
        for computation in reachable:
            fusions = list(computation.with_opcode(Opcode.FUSION))
            if fusions:
                inline_in(computation, fusions, sites)
                changed = True
        if changed:
            module.remove_unreachable_computations()
        return changed
