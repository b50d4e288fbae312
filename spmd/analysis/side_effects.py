"""Side effects of instructions and their callees: such instructions may not be dropped, merged or moved."""

from __future__ import annotations

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.ops import definition


class SideEffects:
    """Answers per instruction. Each object looks at a computation once; make a new object after editing the module."""

    def __init__(self) -> None:
        self._computations: dict[HloComputation, bool] = {}

    def of(self, instruction: HloInstruction) -> bool:
        if definition(instruction.opcode).side_effect(instruction):
            return True
        return any(self.inside(callee) for callee in instruction.called_computations)

    def inside(self, computation: HloComputation) -> bool:
        known = self._computations.get(computation)
        if known is None:
            known = any(self.of(x) for x in computation.instructions)
            self._computations[computation] = known
        return known
