"""All-reduces whose results a loop only adds up, or stacks, are done once behind the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from collectives.passes.reduced import (
    OPERATIONS,
    Reduced,
    is_neutral,
    moves_exactly,
    operation_kind,
    reduced,
)
from spmd.analysis.call_sites import call_sites
from spmd.analysis.side_effects import SideEffects
from spmd.analysis.trip_count import counting, trip_count
from spmd.builder import Builder, ModuleScope
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.reduction import OPERATION, identity_value
from spmd.passes.algebraic.match import used_once
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.loop_values import determined_instructions
from spmd.passes.rewrite import builder_at, is_pinned
from spmd.passes.while_loop_overwritten_state import is_overwritten
from spmd.passes.while_state import (
    Loop,
    element_index,
    match_loop,
    result_has_only_element_reads,
    used_reads_of,
)
from spmd.shape import ArrayShape


@register_pass
@dataclass(frozen=True)
class WhileLoopAllReduceCodeMotion(InstructionPass):
    """total = total + all-reduce(x)    in the body  =>  mine = mine + x, from zero; behind the loop
                                                     total = total before the loop + all-reduce(mine)

    And so for other reductions. The element of the state may be used for nothing else in body and condition. What moves
    elements between all-reduce and sum stays in the loop, before the all-reduce (``moves_exactly``). Integers stay what
    they were, floats are added in another order.

    Also rows = dynamic-update-slice(rows, all-reduce(x), i): the rows are stacked as they are, and summed over devices
    together. As many bytes are sent, and every result keeps its bits. The number of the trip must say which rows are
    written, so that all members write the same, and what the rows are filled with before the loop must stay what it is
    when it is reduced.
    """

    name: ClassVar[str] = "while-loop-all-reduce-code-motion"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.WHILE,)

    def editor(self, module: HloModule) -> Edit:
        scope, sites, effects = ModuleScope(module), call_sites(module), SideEffects()

        def edit(x: HloInstruction) -> bool:
            loop = match_loop(x, sites)
            if (
                loop is None
                or not result_has_only_element_reads(loop)
                or any(map(is_pinned, x.users))
            ):
                return False
            found = [self._match(loop, i) for i in _wanted_elements(loop)]
            moved = [one for one in found if one is not None]
            if moved:
                move_behind(loop, moved, builder_at(x, scope), effects)
            return bool(moved)

        return edit

    def _match(self, loop: Loop, index: int) -> _Moved | None:
        reads, update = used_reads_of(loop.body, index), loop.next_value(index)
        if used_reads_of(loop.condition, index) or len(reads) != 1 or not used_once(reads[0]):
            return None
        if not isinstance(update.shape, ArrayShape) or loop.body.root.operands.count(update) != 1:
            return None
        if update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE:
            return _accumulated(index, update, reads[0])
        return _stacked(loop, index, reads[0])


def _wanted_elements(loop: Loop) -> list[int]:
    return sorted({element_index(user) for user in loop.instruction.users})


@dataclass(frozen=True)
class _Moved:
    """Accumulation of element ``index`` of the state in the body: ``terms``, each an operand at a position of an
    instruction.

    ``starts_anew``: the loop starts with the reduction's neutral element, and what the state was is added behind it.
    """

    index: int
    terms: Sequence[tuple[HloInstruction, int, Reduced]]
    starts_anew: bool

    @property
    def first(self) -> Reduced:
        return self.terms[0][2]

    @property
    def kind(self) -> ReductionKind:
        assert self.first.reducing.kind is not None
        return self.first.reducing.kind


def _accumulated(index: int, update: HloInstruction, read: HloInstruction) -> _Moved | None:
    """Match op(op(read, reduced), reduced): every term is reduced in the same way and used here only."""
    x, terms = update, list[tuple[HloInstruction, int, Reduced]]()
    while x is not read:
        if x.opcode not in OPERATIONS or is_pinned(x) or not used_once(x):
            return None
        term = _term(x)
        if term is None:
            return None
        terms.append(term)
        x = x.operand(1 - term[1])
    if not terms or any(term.merge_key != terms[0][2].merge_key for _, _, term in terms):
        return None
    return _Moved(index, terms, starts_anew=True)


def _term(x: HloInstruction) -> tuple[HloInstruction, int, Reduced] | None:
    """Return ``x``, the index of its operand that is an all-reduce of the kind of ``x``, and that operand. Of a
    subtraction it must be the second one.
    """
    for operand_index in (1,) if x.opcode is Opcode.SUBTRACT else (1, 0):
        term = reduced(
            x.operand(operand_index), operation_kind(x), Opcode.ALL_REDUCE, moves_exactly
        )
        if term is not None:
            return x, operand_index, term
    return None


def _stacked(loop: Loop, index: int, read: HloInstruction) -> _Moved | None:
    """Match dynamic-update-slice(read, reduced, starts) with starts that the number of the trip determines."""
    update = loop.next_value(index)
    if update.operands.count(read) != 1 or update.operand(0) is not read:
        return None
    if is_pinned(update) or not used_once(update):
        return None
    for kind in OPERATION:
        term = reduced(update.operand(1), kind, Opcode.ALL_REDUCE, moves_exactly)
        if term is not None and _keeps_filling(loop, index, kind):
            break
    else:
        return None
    counters = {i for i in range(loop.size) if counting(loop.instruction, i) is not None}
    same = determined_instructions(loop, counters, SideEffects())
    if any(start not in same for start in update.operands[2:]):
        return None
    return _Moved(index, [(update, 1, term)], starts_anew=False)


def _keeps_filling(loop: Loop, index: int, kind: ReductionKind) -> bool:
    """Return whether the reduction leaves the element's initial value unchanged, or the loop overwrites all of it."""
    trips = trip_count(loop.instruction)
    if trips and is_overwritten(loop, index, trips):
        return True
    filling = loop.initial[index]
    return filling.opcode is Opcode.BROADCAST and is_neutral(filling.operand(0), kind)


# ---- editing
def move_behind(loop: Loop, moved: Sequence[_Moved], b: Builder, effects: SideEffects) -> None:
    """Make the body use the values of its own device, and reduce the results after the loop."""
    x = loop.instruction
    results = {one.index: [u for u in x.users if element_index(u) == one.index] for one in moved}
    elements = list(loop.initial)
    for one in moved:
        for user, operand_index, term in one.terms:
            user.replace_operand(operand_index, term.local())
        before = elements[one.index]
        if one.starts_anew:
            shape = before.array_shape
            elements[one.index] = b.full(shape, identity_value(one.kind, shape.element_type))
        total = one.first.of(b.get_tuple_element(x, one.index), b)
        if one.starts_anew:
            total = b.binary(OPERATION[one.kind], before, total)
        for result in results[one.index]:
            b.computation.replace(result, total)
    x.set_operands([b.tuple(elements)])
    loop.body.remove_unused(keep=effects.of)
    b.computation.remove_unused(keep=effects.of)
