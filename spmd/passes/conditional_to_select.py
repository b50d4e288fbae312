"""Compute every branch of a conditional and select among their results."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.live_buffers import running_computations
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.ops.attrs import ConditionalAttrs
from spmd.passes.inline import inline
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import (
    builder_at,
    is_annotated,
    is_pinned,
    replace_and_prune,
)
from spmd.passes.select_cost import selects_pay
from spmd.passes.tuple_simplifier import match_element
from spmd.shape import TupleShape

#: Most instructions of all branches together.
_MAX_INSTRUCTIONS = 4096
_LEAVES = frozenset({Opcode.PARAMETER, Opcode.CONSTANT, Opcode.TUPLE, Opcode.GET_TUPLE_ELEMENT})


@register_pass
@dataclass(frozen=True)
class ConditionalToSelect(InstructionPass):
    """conditional(p, x, y), true_computation=t, false_computation=f  =>  select(p, t(x), f(y))

    if the branches consist of elementwise operations and constants: in the functions of maps, reducers and comparators
    always, since native code knows elements and no branches there; elsewhere where `selects_pay` says so. Large
    branches stay.
    """

    name: ClassVar[str] = "conditional-to-select"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.CONDITIONAL,)

    def editor(self, module: HloModule) -> Edit:
        scope, effects = ModuleScope(module), SideEffects()
        running = frozenset(running_computations(module))

        def edit(x: HloInstruction) -> bool:
            branches = x.called_computations
            if x.has_control_edges or sum(map(len, branches)) > _MAX_INSTRUCTIONS:
                return False
            if not all(map(is_selectable, branches)):
                return False
            if x.parent in running and (is_annotated(x) or not selects_pay(x)):
                return False
            select_branches(x, builder_at(x, scope), effects)
            return True

        return edit


def is_selectable(branch: HloComputation) -> bool:
    """Return whether `branch` consists of elementwise operations and constants, and may run if it is not chosen."""
    return not any(x.has_control_edges for x in branch.instructions) and all(
        x.opcode in _LEAVES
        or (definition(x.opcode).elementwise and not x.called_computations)
        or (x.opcode is Opcode.BROADCAST and not x.operand(0).dims)
        for x in branch.instructions
    )


def select_branches(x: HloInstruction, b: Builder, effects: SideEffects) -> None:
    """Replace the conditional `x` by selects among the results of its branches, whose instructions `b` takes in."""
    computation = b.computation
    before, readers = len(computation), x.users
    selector, *operands = x.operands
    results = [
        inline(branch, (operand,), computation).root
        for branch, operand in zip(x.called_computations, operands, strict=True)
    ]
    chosen = results[-1]
    for number in reversed(range(len(results) - 1)):
        predicate = selector
        if not x.attrs_as(ConditionalAttrs).predicated:
            predicate = b.compare(selector, b.scalar_like(selector, number), "EQ")
        chosen = _select(b, predicate, results[number], chosen)
    made = computation.newest(len(computation) - before)
    replace_and_prune(x, chosen, effects)
    for read in (*made, *readers):
        element = match_element(read) if read.parent is computation else None
        if element is not None and not is_pinned(read):
            replace_and_prune(read, element, effects)


def _select(
    b: Builder, predicate: HloInstruction, x: HloInstruction, y: HloInstruction
) -> HloInstruction:
    """Return a select of arrays, or the tuple of the elements' selects."""
    if not isinstance(x.shape, TupleShape):
        return b.select(b.broadcast_scalar(predicate, x.dims), x, y)
    elements = range(len(x.shape.elements))
    pairs = [(b.get_tuple_element(x, i), b.get_tuple_element(y, i)) for i in elements]
    return b.tuple([_select(b, predicate, *pair) for pair in pairs])
