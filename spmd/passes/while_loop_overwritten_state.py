"""Let arrays that a loop overwrites entirely start uninitialized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.analysis.trip_count import counting, state_index, trip_count
from spmd.analysis.value_trace import Value, constant_int, holds_integer, trace
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass
from spmd.passes.loop_pass import LoopPass
from spmd.passes.while_state import Loop, used_reads_of

#: Values that take memory to be written into as a loop's state, and nothing to compute.
_FILLINGS = frozenset({Opcode.BROADCAST, Opcode.CONSTANT})


@register_pass
@dataclass(frozen=True)
class WhileLoopOverwrittenState(LoopPass):
    """state = (i, zeros)  =>  state = (i, AllocateBuffer())    where the body writes part i of n in trip i of n

    What a scan stacks starts as zeros, of which none is left at its end and none is read before. The body may do
    nothing else with the element, and the condition nothing at all. A filling that other loops have, too, is memory for
    each of them.
    """

    name: ClassVar[str] = "while-loop-overwritten-state"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)

    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        trips = trip_count(loop.instruction)
        if not trips:
            return False
        indices = [i for i in range(loop.size) if is_overwritten(loop, i, trips)]
        if indices:
            begin_uninitialized(loop, indices, builder, effects)
        return bool(indices)


def begin_uninitialized(
    loop: Loop, indices: Sequence[int], builder: Builder, effects: SideEffects
) -> None:
    """Make the elements ``indices`` of the state start uninitialized, and remove their initial values if these are not
    used elsewhere.
    """
    elements = list(loop.initial)
    for i in indices:
        elements[i] = builder.uninitialized(elements[i].array_shape)
    loop.instruction.set_operands([builder.tuple(elements)])
    builder.computation.remove_unused(keep=effects.of)


def is_overwritten(loop: Loop, index: int, trips: int) -> bool:
    """Return whether element ``index`` starts as a constant fill that ``trips`` > 0 trips overwrite entirely and that
    is never read.
    """
    if loop.initial[index].opcode not in _FILLINGS or used_reads_of(loop.condition, index):
        return False
    reads, update = used_reads_of(loop.body, index), loop.next_value(index)
    if update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE or reads != [update.operand(0)]:
        return False
    is_only_written = reads[0].users == (update,) and update.operands.count(reads[0]) == 1
    is_only_handed_on = all(user is loop.body.root for user in update.users)
    return is_only_written and is_only_handed_on and _covers(loop.instruction, update, trips)


def _covers(loop: HloInstruction, update: HloInstruction, trips: int) -> bool:
    """Return whether all trips write every element: each part has the array's sizes except along one dimension, along
    which the trips advance.
    """
    sizes, part = update.operand(0).dims, update.operand(1).dims
    cut = [d for d in range(len(sizes)) if part[d] != sizes[d]]
    if len(cut) != 1:
        return not cut
    (d,) = cut
    ends = _first_and_last(loop, Value(update.operand(2 + d)), trips)
    if ends is None or sorted(ends) != [0, sizes[d] - part[d]]:
        return False
    return sizes[d] - part[d] <= (trips - 1) * part[d]


def _first_and_last(loop: HloInstruction, value: Value, trips: int) -> tuple[int, int] | None:
    """Return an integer of the body in the first and in the last trip if it grows by a constant per trip, else None."""
    value = trace(value)
    x = value.instruction
    constant, index = constant_int(value), state_index(value)
    ends = None if constant is None else (constant, constant)
    if index is not None and (counted := counting(loop, index)) is not None:
        start, step = counted
        ends = start, start + (trips - 1) * step
    elif x.opcode in (Opcode.ADD, Opcode.SUBTRACT):
        a, b = (_first_and_last(loop, value.operand(i), trips) for i in (0, 1))
        if a is not None and b is not None:
            sign = 1 if x.opcode is Opcode.ADD else -1
            ends = a[0] + sign * b[0], a[1] + sign * b[1]
    elif x.opcode is Opcode.MULTIPLY:
        a, b = (_first_and_last(loop, value.operand(i), trips) for i in (0, 1))
        if a is not None and b is not None and (a[0] == a[1] or b[0] == b[1]):
            ends = a[0] * b[0], a[1] * b[1]
    if ends is None or not all(holds_integer(x.array_shape.element_type, end) for end in ends):
        return None
    return ends
