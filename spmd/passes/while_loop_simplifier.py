"""Loops with no or one iteration, and state elements that never change or are not read."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.call_sites import call_sites
from spmd.analysis.side_effects import SideEffects
from spmd.analysis.trip_count import trip_count
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.inline import inline
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_pinned
from spmd.passes.while_state import (
    Loop,
    element_index,
    is_element_of,
    keep_elements,
    match_loop,
    result_has_only_element_reads,
    used_reads,
)


@register_pass
@dataclass(frozen=True)
class WhileLoopSimplifier(InstructionPass):
    """A loop of 0 iterations => its initial state;  of 1 iteration => its body, inlined

    get-tuple-element(while(tuple(.., c, ..)), i)  =>  c, where the body hands element i on unchanged
    Elements that neither the condition nor any used element needs are dropped from the state.
    """

    name: ClassVar[str] = "while-loop-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.WHILE,)

    def editor(self, module: HloModule) -> Edit:
        scope, effects, sites = ModuleScope(module), SideEffects(), call_sites(module)

        def edit(x: HloInstruction) -> bool:
            if _unroll_trivial(x, effects):
                return True
            loop = match_loop(x, sites)
            if loop is None:
                return False
            changed = _forward_invariants(loop)
            return _drop_dead_elements(loop, builder_at(x, scope), effects) or changed

        return edit


def _unroll_trivial(x: HloInstruction, effects: SideEffects) -> bool:
    """Replace a loop whose body runs not at all or once."""
    if is_pinned(x) or effects.inside(x.while_condition):
        return False
    trips = trip_count(x)
    if trips not in (0, 1):
        return False
    assert x.parent is not None
    value = x.operand(0) if trips == 0 else inline(x.while_body, x.operands, x.parent).root
    x.parent.replace(x, value)
    return True


def _forward_invariants(loop: Loop) -> bool:
    changed = False
    for user in loop.instruction.users:
        if user.opcode is not Opcode.GET_TUPLE_ELEMENT or is_pinned(user):
            continue
        if loop.is_invariant(element_index(user)):
            assert user.parent is not None
            user.parent.replace(user, loop.initial[element_index(user)])
            changed = True
    return changed


def _drop_dead_elements(loop: Loop, builder: Builder, effects: SideEffects) -> bool:
    if not result_has_only_element_reads(loop):
        return False
    live = live_elements(loop, effects)
    if len(live) == loop.size or not live:
        return False
    keep_elements(loop, sorted(live), builder, effects)
    return True


def live_elements(loop: Loop, effects: SideEffects) -> set[int]:
    """Return the elements that are read outside the loop or by the condition, and those that these or a side effect in
    the body depend on.
    """
    live: set[int] = set()
    seen: set[HloInstruction] = set()
    work = [x for x in loop.body.instructions if effects.of(x) or x.control_successors]

    def need(index: int) -> None:
        if index not in live:
            live.add(index)
            work.append(loop.next_value(index))

    for outside in (loop.instruction, loop.condition.parameters[0]):
        for read in used_reads(outside):
            need(element_index(read))
    parameter = loop.body.parameters[0]
    while work:
        x = work.pop()
        if x in seen:
            continue
        seen.add(x)
        if is_element_of(x, parameter):
            need(element_index(x))
            continue
        work.extend(x.operands)
    return live
