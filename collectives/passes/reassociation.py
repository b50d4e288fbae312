"""Sums of reductions over devices become reductions of sums: what all-reduces and reduce-scatters have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from collectives.passes.reducing import Reducing, reducing
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.device import ReductionKind
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.reduction import on_type
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.rewrite import builder_at, is_pinned, replace_and_prune
from spmd.shape import ArrayShape

#: What each operation does between two reductions of which kind. A difference is a sum of one that is negated.
_KIND = {
    Opcode.ADD: ReductionKind.SUM,
    Opcode.SUBTRACT: ReductionKind.SUM,
    Opcode.MULTIPLY: ReductionKind.PRODUCT,
    Opcode.MINIMUM: ReductionKind.MIN,
    Opcode.MAXIMUM: ReductionKind.MAX,
    Opcode.AND: ReductionKind.AND,
    Opcode.OR: ReductionKind.OR,
    Opcode.XOR: ReductionKind.XOR,
}


@dataclass(frozen=True)
class Reassociation(InstructionPass):
    """op(reduced(a), reduced(b))  =>  reduced(op(a, b))    for collectives of ``opcode``, as op and their reducers say

    Nobody else may want the two.
    """

    opcode: ClassVar[Opcode]
    opcodes: ClassVar[tuple[Opcode, ...]] = tuple(_KIND)
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)

    def moves(self, step: HloInstruction, kind: ReductionKind) -> bool:
        """Whether ``step``, of one operand, between collective and op may as well stand before the collective."""
        return False

    def walk(self, computation: HloComputation) -> Iterable[HloInstruction]:
        """Operands first: what became one reduction may do so again."""
        if not any(True for _ in computation.with_opcode(self.opcode)):
            return ()
        return [x for x in computation.post_order() if x.opcode in self.opcodes]

    def editor(self, module: HloModule) -> Edit:
        scope, effects = ModuleScope(module), SideEffects()

        def edit(x: HloInstruction) -> bool:
            both = None if is_pinned(x) else self._match(x)
            if both is not None:
                replace_and_prune(x, reassociated(x, both, builder_at(x, scope)), effects)
            return both is not None

        return edit

    def _match(self, x: HloInstruction) -> list[_Reduced] | None:
        if not isinstance(x.shape, ArrayShape) or x.operand(0) is x.operand(1):
            return None
        kind = on_type(_KIND[x.opcode], x.array_shape.element_type)
        both = [found for o in x.operands if (found := self._reduced(o, kind)) is not None]
        if len(both) != 2 or both[0].alike != both[1].alike:
            return None
        return both

    def _reduced(self, value: HloInstruction, kind: ReductionKind) -> _Reduced | None:
        """``value`` as a collective of that kind and what is done to its result; None where others want one of them."""
        steps: list[HloInstruction] = []
        while value.opcode is not self.opcode:
            if not _serves_one(value) or is_pinned(value) or not self.moves(value, kind):
                return None
            steps.append(value)
            value = value.operand(0)
        if not _serves_one(value) or value.num_operands != 1:
            return None
        found = reducing(value)
        return _Reduced(value, steps, found) if found is not None and found.kind is kind else None


def _serves_one(x: HloInstruction) -> bool:
    return x.num_users == 1 and not x.is_root


@dataclass(frozen=True)
class _Reduced:
    """``steps``: what stands between the collective and its user, the last one first."""

    collective: HloInstruction
    steps: Sequence[HloInstruction]
    reducing: Reducing

    @property
    def alike(self) -> Reducing:
        """Equal for two that may become one: the types may have been converted into one."""
        element_type = (self.steps or [self.collective])[0].array_shape.element_type
        return replace(self.reducing, element_type=element_type)

    def local(self) -> HloInstruction:
        """The steps, done to the collective's operand."""
        value = self.collective.operand(0)
        for step in reversed(self.steps):
            assert step.parent is not None
            value = step.parent.add(step.clone(step.shape, (value,)))
        return value


def reassociated(x: HloInstruction, both: Sequence[_Reduced], b: Builder) -> HloInstruction:
    """The collective of what ``x`` computes of the local values."""
    first = both[0]
    local = b.binary(x.opcode, both[0].local(), both[1].local())
    collective = first.collective
    alike = first.alike
    reducer = collective.to_apply
    if alike.element_type is not first.reducing.element_type:
        assert alike.kind is not None
        reducer = b.scope.reducer(alike.kind, alike.element_type)
    result = b.create(collective.opcode, (local,), collective.attrs, calls=(reducer,))
    result.annotations = collective.annotations
    return result
