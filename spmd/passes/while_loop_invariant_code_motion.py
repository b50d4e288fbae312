"""Compute before a loop what every iteration would compute alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmd.analysis.call_sites import call_sites
from spmd.analysis.side_effects import SideEffects
from spmd.analysis.wire import KIND
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.passes.rewrite import builder_at, has_control_edges
from spmd.passes.while_state import Loop, add_elements, element_index, is_element_of, match_loop
from spmd.shape import ArrayShape

#: Cheaper made again than carried through the loop.
_FREE = (
    Opcode.CONSTANT,
    Opcode.IOTA,
    Opcode.BROADCAST,
    Opcode.RESHAPE,
    Opcode.BITCAST,
    Opcode.GET_TUPLE_ELEMENT,
    Opcode.TUPLE,
)

_STAY = (Opcode.PARAMETER, Opcode.OPT_BARRIER, Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL, *KIND)


@register_pass
@dataclass(frozen=True)
class WhileLoopInvariantCodeMotion(InstructionPass):
    """Move computations on unchanging state elements out of loop bodies.

    Collectives stay, so that no gathered value lives longer than one iteration. So do values larger than what they are
    made from, up to ``max_inflation`` bytes.
    """

    name: ClassVar[str] = "while-loop-invariant-code-motion"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.WHILE,)
    max_inflation: int = 4096

    def editor(self, module: HloModule) -> Edit:
        scope, effects, sites = ModuleScope(module), SideEffects(), call_sites(module)

        def edit(x: HloInstruction) -> bool:
            loop = match_loop(x, sites)
            if loop is None:
                return False
            hoisted = self._hoistable(loop, effects)
            if hoisted:
                _hoist(loop, hoisted, builder_at(x, scope))
            return bool(hoisted)

        return edit

    def _hoistable(self, loop: Loop, effects: SideEffects) -> list[HloInstruction]:
        """Invariant values that the rest of the body reads and that are worth carrying, in post-order."""
        invariant = invariant_instructions(loop, effects)
        wanted: dict[HloInstruction, None] = {}
        for x in invariant:
            if any(user not in invariant for user in x.users):
                for value in _worth_carrying(x):
                    wanted[value] = None
        return [x for x in invariant if x in wanted and self._fits(x, invariant)]

    def _fits(self, x: HloInstruction, invariant: dict[HloInstruction, None]) -> bool:
        sources = sum(
            leaf.shape.byte_size for leaf in _cone(x) if leaf.opcode is Opcode.GET_TUPLE_ELEMENT
        )
        return isinstance(x.shape, ArrayShape) and x.shape.byte_size <= max(
            sources, self.max_inflation
        )


def invariant_instructions(loop: Loop, effects: SideEffects) -> dict[HloInstruction, None]:
    """What has one value in all iterations, in post-order (an ordered set)."""
    parameter = loop.body.parameters[0]
    invariant: dict[HloInstruction, None] = {}
    for x in loop.body.post_order():
        if is_element_of(x, parameter):
            if loop.is_invariant(element_index(x)):
                invariant[x] = None
            continue
        if x.opcode in _STAY or has_control_edges(x) or effects.of(x) or x.is_root:
            continue
        made_here = x.opcode in (Opcode.CONSTANT, Opcode.IOTA)
        if made_here or (x.operands and all(operand in invariant for operand in x.operands)):
            invariant[x] = None
    return invariant


def _worth_carrying(x: HloInstruction) -> list[HloInstruction]:
    """``x``, or what it is made from where making it is free."""
    found: list[HloInstruction] = []
    work, seen = [x], {x}
    while work:
        value = work.pop()
        if value.opcode not in _FREE:
            found.append(value)
            continue
        for operand in value.operands:
            if operand not in seen and operand.opcode is not Opcode.PARAMETER:
                seen.add(operand)
                work.append(operand)
    return found


def _cone(x: HloInstruction) -> list[HloInstruction]:
    """``x`` and everything it is made from within the body, state elements as leaves, operands first."""
    order: list[HloInstruction] = []
    seen: set[HloInstruction] = set()
    stack: list[tuple[HloInstruction, bool]] = [(x, False)]
    while stack:
        value, ready = stack.pop()
        if ready:
            order.append(value)
            continue
        if value in seen:
            continue
        seen.add(value)
        stack.append((value, True))
        if not _is_element(value):
            stack.extend((operand, False) for operand in reversed(value.operands))
    return order


def _is_element(x: HloInstruction) -> bool:
    return x.opcode is Opcode.GET_TUPLE_ELEMENT and x.operand(0).opcode is Opcode.PARAMETER


def _hoist(loop: Loop, values: list[HloInstruction], builder: Builder) -> None:
    """Copy what ``values`` are made from in front of the loop and carry them through it."""
    outside: dict[HloInstruction, HloInstruction] = {}
    for value in values:
        for x in _cone(value):
            if x in outside:
                continue
            if _is_element(x):
                outside[x] = loop.initial[element_index(x)]
            else:
                copy = x.clone(x.shape, [outside[operand] for operand in x.operands])
                outside[x] = builder.computation.add(copy)
    carried = add_elements(loop, [outside[value] for value in values], builder)
    for value, element in zip(values, carried, strict=True):
        value.replace_all_uses_with(element)
    loop.body.remove_unused(keep=lambda x: x not in outside)
