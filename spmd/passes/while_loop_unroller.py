"""Loops that do the work of several trips in one."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.computation import HloComputation
from spmd.hlo.opcode_roles import CALLERS
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass
from spmd.passes.loop_pass import LoopPass
from spmd.passes.loop_peeling import CountedLoop, match_counted, peel_last, write_trips
from spmd.passes.options import PassOptionError
from spmd.passes.while_loop_trip_count_annotator import forget_trip_count
from spmd.passes.while_state import Loop, element_index, has_effects


@register_pass
@dataclass(frozen=True)
class WhileLoopUnroller(LoopPass):
    """body  =>  body; body; .. (``factor`` times; trips that are left over stand behind the loop)

    With a factor of 2 a loop is double-buffered: received data need not be copied to the buffer that the next trip
    reads, and a collective of the second trip can overlap all of the first. A factor of 0 means full unrolling: any
    collective may then overlap any trip, and equal gathers of several trips or loops are done once. Loops without
    collectives stay, unless ``collectives`` is false, and so do loops that would have more than ``max_instructions``
    after it, those of nested loops and branches included (0: any number).
    """

    name: ClassVar[str] = "while-loop-unroller"
    factor: int = 2
    collectives: bool = True
    max_instructions: int = 0

    def __post_init__(self) -> None:
        if self.factor < 0 or self.factor == 1:
            raise PassOptionError(
                f"option factor of {self.name}: expected 0, or 2 or more, found {self.factor}"
            )
        if self.max_instructions < 0:
            raise PassOptionError(
                f"option max_instructions of {self.name}: expected 0 or more, found {self.max_instructions}"
            )

    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        if has_effects(loop, effects):
            return False
        if self.collectives and not any(i.opcode in KIND for i in loop.body.instructions):
            return False
        counted = match_counted(loop)
        if counted is None or counted.trips < self.factor:
            return False
        factor = self.factor or counted.trips
        if 0 < self.max_instructions < factor * _length(loop.body):
            return False
        if self.factor:
            unroll(counted, factor, builder, effects)
        else:
            unroll_fully(counted, builder, effects)
        return True


def _length(computation: HloComputation) -> int:
    """Return the number of instructions, nested loops and branches included: each copy is to have its own
    (flatten-call-graph).
    """
    callers = computation.with_opcode(*CALLERS)
    return len(computation) + sum(_length(c) for x in callers for c in x.called_computations)


def unroll(counted: CountedLoop, factor: int, builder: Builder, effects: SideEffects) -> None:
    for _ in range(counted.trips % factor):
        counted = peel_last(counted, builder, effects)
    repeat_body(counted.loop, factor, builder, effects)


def unroll_fully(counted: CountedLoop, builder: Builder, effects: SideEffects) -> None:
    """Replace the loop by all of its trips, one after the other."""
    loop = counted.loop
    *_, last = write_trips(loop, loop.initial, builder, counted.trips)
    for user in loop.instruction.users:
        builder.computation.replace(user, last[loop.next_value(element_index(user))])
    builder.computation.remove_unused(keep=effects.of)


def repeat_body(loop: Loop, factor: int, builder: Builder, effects: SideEffects) -> None:
    """Let each trip do ``factor`` trips' work, of which there must be a multiple."""
    inside, root = builder.within(loop.body), loop.body.root
    *_, last = write_trips(loop, root.operands, inside, factor - 1)
    loop.body.root = inside.tuple([last[x] for x in root.operands])
    loop.body.remove(root)
    loop.body.remove_unused(keep=effects.of)
    forget_trip_count(loop.instruction)
