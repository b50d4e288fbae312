"""Collectives of values that the next trip's number determines: moved into the trip before the one that reads them."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.passes.loop_peeling import CountedLoop, peel_last
from spmd.passes.loop_values import SAME_IN_ALL_TRIPS, copy_cones, determined_instructions
from spmd.passes.rewrite import is_pinned
from spmd.passes.while_state import add_elements, element_index
from spmd.shape import ArrayShape


def determined_by_trip(counted: CountedLoop, effects: SideEffects) -> dict[HloInstruction, None]:
    """Return the values of a trip that are determined by its number and by loop invariants."""
    loop = counted.loop
    elements = loop.invariants() | counted.counters.keys()
    return determined_instructions(loop, elements, effects, SAME_IN_ALL_TRIPS)


def gathers_to_move(
    counted: CountedLoop, effects: SideEffects, min_bytes: int
) -> list[HloInstruction]:
    """Return the collectives whose operands the trip's number determines and whose results differ from trip to trip."""
    loop, determined = counted.loop, determined_by_trip(counted, effects)
    unchanging = determined_instructions(loop, loop.invariants(), effects, SAME_IN_ALL_TRIPS)
    return [
        x
        for x in loop.body.post_order()
        if x.opcode in KIND
        and isinstance(x.shape, ArrayShape)
        and x.shape.byte_size >= min_bytes
        and not is_pinned(x)
        and all(operand in determined for operand in x.operands)
        and any(operand not in unchanging for operand in x.operands)
        # A gather that only the next trip reads has been moved already.
        and any(not user.is_root for user in x.users)
    ]


def gather_ahead(
    counted: CountedLoop,
    gathers: Sequence[HloInstruction],
    builder: Builder,
    effects: SideEffects,
) -> None:
    """Carry the results of ``gathers`` through the loop. Each trip computes those of the next one; the last trip, which
    needs none, is written after the loop.
    """

    def initial(x: HloInstruction) -> HloInstruction:
        return counted.loop.initial[element_index(x)]

    first = copy_cones(gathers, initial, builder)
    loop, carried = add_elements(counted.loop, [first[x] for x in gathers], builder)

    def following(x: HloInstruction) -> HloInstruction:
        index = element_index(x)
        return loop.next_value(index) if index in counted.counters else x

    after = copy_cones(gathers, following, builder.within(loop.body))
    for x, element in zip(gathers, carried, strict=True):
        x.replace_all_uses_with(element)
        loop.body.root.replace_operand(element_index(element), after[x])
    loop.body.remove_unused(keep=effects.of)
    peel_last(counted.carrying(loop), builder, effects)
