"""Loops whose state alternates between two places, where what a trip makes of it cannot be written over it."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.analysis.trip_count import trip_count
from spmd.builder import Builder
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.opdef import OPS
from spmd.passes.interface import register_pass
from spmd.passes.loop_pass import LoopPass
from spmd.passes.loop_peeling import match_counted
from spmd.passes.rewrite import is_pinned
from spmd.passes.while_loop_unroller import repeat_body, unroll
from spmd.passes.while_state import Loop, element_index, has_effects, is_element_of
from spmd.shape import ArrayShape

#: Ops whose results have elements of the operand at other positions.
_MOVES = frozenset(
    {
        Opcode.CONCATENATE,
        Opcode.DYNAMIC_SLICE,
        Opcode.PAD,
        Opcode.REVERSE,
        Opcode.SLICE,
        Opcode.TRANSPOSE,
    }
)
#: Theirs have them in the same order.
_KEEPS = frozenset({Opcode.BITCAST, Opcode.BROADCAST, Opcode.COPY, Opcode.RESHAPE})

#: Most instructions of a body that is repeated.
_MAX_INSTRUCTIONS = 128


@register_pass
@dataclass(frozen=True)
class WhileLoopDoubleBuffer(LoopPass):
    """body(x) = x + rotate(x)  =>  body(x) = {y = x + rotate(x);  y + rotate(y)}    half as many trips

    An array of the state that is computed, element by element, from itself at other positions (a stencil) must not
    overwrite elements that are still to be read. A trip for two writes y to another buffer, and the next x over the old
    one, which is dead by then: there is no copy, and no kernel except those that compute the arrays. A last trip that
    is left over is written after the loop. Large bodies stay.
    """

    name: ClassVar[str] = "while-loop-double-buffer"

    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        if len(loop.body.instructions) > _MAX_INSTRUCTIONS:
            return False
        if has_effects(loop, effects) or not has_stencil(loop):
            return False
        return run_twice(loop, builder, effects)


def run_twice(loop: Loop, builder: Builder, effects: SideEffects) -> bool:
    """Put two trips into one if the trip count is known and the body's root is not pinned. Returns whether it did."""
    trips = trip_count(loop.instruction)
    if trips is None or trips < 2 or is_pinned(loop.body.root):
        return False
    if trips % 2 == 0:
        repeat_body(loop, 2, builder, effects)
        return True
    counted = match_counted(loop)
    if counted is None:
        return False
    unroll(counted, 2, builder, effects)
    return True


def has_stencil(loop: Loop) -> bool:
    return any(_is_stencil(loop, index) for index in range(loop.size))


def _is_stencil(loop: Loop, index: int) -> bool:
    """Return whether element ``index`` is computed from its own elements at other positions, without a value in memory
    in between.
    """
    shape = loop.initial[index].shape
    if not isinstance(shape, ArrayShape) or shape.num_elements < 2:
        return False
    stack = [(loop.next_value(index), False)]
    seen = set(stack)
    while stack:
        x, moved = stack.pop()
        if is_element_of(x, loop.body.parameters[0]):
            if moved and element_index(x) == index:
                return True
            continue
        if x.opcode in _MOVES:
            reads = x.operands if x.opcode is Opcode.CONCATENATE else x.operands[:1]
            moved = True
        elif x.opcode in _KEEPS or OPS[x.opcode].elementwise:
            reads = x.operands
        else:
            continue
        found = [(operand, moved) for operand in reads if (operand, moved) not in seen]
        seen.update(found)
        stack += found
    return False
