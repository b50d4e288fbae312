"""Let equal reducers, comparators and element functions be one computation."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.structure import StructuralKeys
from spmd.hlo.computation import HloComputation
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import is_annotated

#: Opcodes whose callees are edited in place by passes, separately for each caller.
_CONTROL_FLOW = (
    Opcode.WHILE,
    Opcode.CONDITIONAL,
    Opcode.CALL,
    Opcode.FUSION,
    Opcode.ASYNC_START,
    Opcode.ASYNC_UPDATE,
    Opcode.ASYNC_DONE,
    Opcode.CUSTOM_CALL,
)


@register_pass
@dataclass(frozen=True)
class SubcomputationUnification(FueledPass):
    """reduce(x), to_apply=region_0  reduce(y), to_apply=region_7  =>  both to_apply=region_0, where these are equal

    JAX writes a computation for every reduction. Only computations that call nothing are compared, and bodies of
    loops, branches and calls stay apart.
    """

    name: ClassVar[str] = "subcomputation-unification"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        keys = StructuralKeys()
        first: dict[int, HloComputation] = {}
        changed = False
        for x in module.all_instructions():
            if x.opcode in _CONTROL_FLOW:
                continue
            for i, callee in enumerate(x.called_computations):
                if not _names_alone_may_differ(callee):
                    continue
                known = first.setdefault(keys.key(callee), callee)
                if known is not callee and not fuel.is_spent:
                    fuel.burn()
                    x.called_computations[i] = known
                    changed = True
        if changed:
            module.remove_unreachable_computations()
        return changed


def _names_alone_may_differ(computation: HloComputation) -> bool:
    """Return whether the computation's structural key compares all that its instructions state, except names."""
    return not any(
        x.opcode is Opcode.CUSTOM_CALL or x.called_computations or is_annotated(x)
        for x in computation.instructions
    )
