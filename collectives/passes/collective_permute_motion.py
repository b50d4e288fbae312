"""Collective-permutes of loops: out of them, to the beginning of a trip, and not in the last trip if unread."""

from __future__ import annotations

from typing import ClassVar

from collectives.passes.carried_permutes import (
    carry_unsent,
    is_wasted_in_the_end,
    permutes_to_carry,
)
from collectives.passes.collective_permute_matching import match_permute
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.passes.interface import register_pass
from spmd.passes.loop_pass import LoopPass
from spmd.passes.loop_peeling import match_counted, peel_last
from spmd.passes.loop_values import SAME_IN_ALL_TRIPS, compute_before, determined_instructions
from spmd.passes.while_state import Loop, has_effects


@register_pass
@dataclass(frozen=True)
class CollectivePermuteMotion(LoopPass):
    """Move collective-permutes within and out of loops.

    Out: a permute with the same operand in every trip is done once, before the loop.

    To the next trip: a permute at the end of a trip, for the next one, is done by that one. There it can overlap work
    that does not depend on it. The first trip, which has nothing to send, is written before the loop.

        x = element 1                                  x = collective-permute(element 1)
        y = dot(a, b) + x                      =>      y = dot(a, b) + x
        next element 1 = collective-permute(y)         next element 1 = y

    Not in the last trip: if the last permute's result is not read, that trip is written after the loop, without it.
    Both copy the body, which may have ``max_copied`` instructions.
    """

    name: ClassVar[str] = "collective-permute-motion"
    max_copied: int = 500

    def edit_loop(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        invariant = _invariant_permutes(loop, effects)
        if invariant:
            loop = compute_before(loop, invariant, builder)
        return self._move(loop, builder, effects) or bool(invariant)

    def _move(self, loop: Loop, builder: Builder, effects: SideEffects) -> bool:
        """Move permutes to the beginning of the next trip, and out of the last trip. Returns whether any moved."""
        if len(loop.body) > self.max_copied or has_effects(loop, effects):
            return False
        counted = match_counted(loop)
        if counted is None:
            return False
        carried = permutes_to_carry(counted, effects)
        if carried:
            counted = carry_unsent(counted, carried, builder, effects)
        wasted = counted.trips > 1 and is_wasted_in_the_end(counted.loop)
        if wasted:
            peel_last(counted, builder, effects)
        return bool(carried) or wasted


def _invariant_permutes(loop: Loop, effects: SideEffects) -> list[HloInstruction]:
    """Return the permutes of values that no trip changes."""
    unchanging = {i for i in range(loop.size) if loop.is_invariant(i)}
    same = determined_instructions(loop, unchanging, effects, SAME_IN_ALL_TRIPS)
    return [
        x
        for x in loop.body.post_order()
        if (permute := match_permute(x)) is not None and permute.operand in same
    ]
