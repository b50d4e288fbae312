"""Give every loop, branch and call computations of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spmd.analysis.call_sites import require_bounded
from spmd.hlo.clone import clone_computation
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode_roles import CALLERS
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class FlattenCallGraph(FueledPass):
    """while(a), body=b  while(c), body=b  =>  while(a), body=b  while(c), body=b.1

    A function with a loop in it that was inlined twice leaves two loops with one body. Passes that change what a loop
    carries, or shard its values, want one caller for each computation. Reducers and the like may be shared.
    Raises UnsupportedError if the program would have more than MAX_UNSHARED instructions: loops in loops may double it.
    """

    name: ClassVar[str] = "flatten-call-graph"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        require_bounded(module, lambda x: x.opcode in CALLERS, "its own")
        taken: set[HloComputation] = set()
        changed = False
        work = [module.entry]
        while work:
            for x in control_flow(work.pop()):
                for i, callee in enumerate(x.called_computations):
                    if callee in taken and not fuel.is_spent:
                        fuel.burn()
                        callee = clone_computation(callee, module, lambda shared: shared)
                        x.called_computations[i] = callee
                        changed = True
                    taken.add(callee)
                    work.append(callee)
        if changed:
            module.computations = module.computations_post_order()
        return changed


def control_flow(computation: HloComputation) -> Iterator[HloInstruction]:
    return computation.with_opcode(*CALLERS)
