"""Sums of reductions over devices become reductions of sums: what all-reduces and reduce-scatters have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from collectives.passes.reduced import (
    OPERATIONS,
    Reduced,
    is_sum_over_elements,
    operation_kind,
    reduced,
)
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.device import ReductionKind
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.reduction import reduction_kind
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.rewrite import builder_at, is_pinned, replace_and_prune
from spmd.shape import ArrayShape


@dataclass(frozen=True)
class Reassociation(InstructionPass):
    """op(reduced(a), reduced(b))  =>  reduced(op(a, b))    for collectives of ``opcode``, as op and their reducers say

    The two collectives must have no other users.
    """

    opcode: ClassVar[Opcode]
    opcodes: ClassVar[tuple[Opcode, ...]] = OPERATIONS
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)

    def moves(self, step: HloInstruction, kind: ReductionKind) -> bool:
        """Return whether ``step``, between collective and op, may be moved before the collective."""
        return False

    def traversal(self, computation: HloComputation) -> Iterable[HloInstruction]:
        """Return the ops, operands first: a new reduction may be combined again."""
        if not any(True for _ in computation.with_opcode(self.opcode)):
            return ()
        return [x for x in computation.post_order() if x.opcode in self.opcodes]

    def editor(self, module: HloModule) -> Edit:
        scope, effects = ModuleScope(module), SideEffects()

        def edit(x: HloInstruction) -> bool:
            swap = self._over_elements if x.opcode is Opcode.REDUCE else self._of_two
            swapped = None if is_pinned(x) else swap(x, builder_at(x, scope))
            if swapped is not None:
                replace_and_prune(x, swapped, effects)
            return swapped is not None

        return edit

    def _over_elements(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        kind = reduction_kind(x.to_apply)
        if kind is None or not is_sum_over_elements(x, kind):
            return None
        one = reduced(x.operand(0), kind, self.opcode, self.moves)
        if one is None:
            return None
        operands = (one.local(), x.operand(1))
        return one.of(b.create(x.opcode, operands, x.attrs, calls=x.called_computations), b)

    def _of_two(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        both = self._match(x)
        if both is None:
            return None
        one, other = both
        return one.of(b.binary(x.opcode, one.local(), other.local()), b)

    def _match(self, x: HloInstruction) -> tuple[Reduced, Reduced] | None:
        if not isinstance(x.shape, ArrayShape) or x.operand(0) is x.operand(1):
            return None
        kind = operation_kind(x)
        one = reduced(x.operand(0), kind, self.opcode, self.moves)
        other = reduced(x.operand(1), kind, self.opcode, self.moves) if one is not None else None
        if one is None or other is None or one.merge_key != other.merge_key:
            return None
        return one, other
