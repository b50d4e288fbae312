"""Loops that carry what was sent from trip to trip, and could carry what is to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collectives.passes.collective_permute_matching import Permute, match_permute
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.passes.algebraic.match import used_once
from spmd.passes.loop_peeling import CountedLoop, begin_with, peel_first
from spmd.passes.loop_values import cone, copy_cones, determined_instructions
from spmd.passes.rewrite import is_pinned
from spmd.passes.while_state import Loop, element_index, is_element_of
from spmd.shape_compatibility import compatible

#: Ops that take long enough to hide communication.
_LONG: Final = (
    Opcode.DOT,
    Opcode.CONVOLUTION,
    Opcode.REDUCE,
    Opcode.REDUCE_WINDOW,
    Opcode.SORT,
    Opcode.SCATTER,
    Opcode.WHILE,
    Opcode.CONDITIONAL,
    Opcode.CALL,
    Opcode.FUSION,
    Opcode.CUSTOM_CALL,
    *KIND,
)


@dataclass(frozen=True)
class CarriedPermute:
    """The body's next value of element ``index`` is ``value``: elementwise operations on what ``permute`` receives."""

    index: int
    value: HloInstruction
    permute: Permute


def permutes_to_carry(counted: CountedLoop, effects: SideEffects) -> list[CarriedPermute]:
    """Return the permutes to move into the next trip: that saves one, or lets it overlap long work."""
    loop = counted.loop
    same = determined_instructions(loop, loop.invariants(), effects)
    read_after = {element_index(user) for user in loop.instruction.users}
    read_by_condition = {element_index(user) for user in loop.condition.parameters[0].users}
    found: list[CarriedPermute] = []
    for index in range(loop.size):
        carried = _match_carried(loop, index, same)
        if carried is None or index in read_by_condition or _is_early(carried.permute.operand):
            continue
        if index not in read_after or _overlaps_long_work(loop, index):
            found.append(carried)
    return found


def _match_carried(
    loop: Loop, index: int, same: Mapping[HloInstruction, None]
) -> CarriedPermute | None:
    """Return the permute that element ``index`` ends with, possibly followed by elementwise operations with values of
    ``same``, which are equal in all trips.
    """
    root = loop.body.root
    value = x = loop.next_value(index)
    if root.operands.count(x) != 1:
        return None
    while used_once(x) and not is_pinned(x):
        permute = match_permute(x)
        if permute is not None:
            is_compatible = compatible(permute.operand.shape, loop.initial[index].shape)
            return CarriedPermute(index, value, permute) if is_compatible else None
        changing = dict.fromkeys(operand for operand in x.operands if operand not in same)
        if not definition(x.opcode).elementwise or x.called_computations or len(changing) != 1:
            return None
        (x,) = changing
    return None


def _is_early(x: HloInstruction) -> bool:
    """Return whether no long work precedes ``x`` in the body, so that it can be sent while the trip computes."""
    return not any(value.opcode in _LONG for value in cone(x))


def _overlaps_long_work(loop: Loop, index: int) -> bool:
    """Return whether the body has long work that does not depend on element ``index``."""
    needs: set[HloInstruction] = set()
    for x in loop.body.post_order():
        is_read = is_element_of(x, loop.body.parameters[0]) and element_index(x) == index
        if is_read or any(operand in needs for operand in x.operands):
            needs.add(x)
        elif x.opcode in _LONG and x.opcode not in KIND:
            return True
    return False


def carry_unsent(
    counted: CountedLoop, carried: list[CarriedPermute], builder: Builder, effects: SideEffects
) -> CountedLoop:
    """Make each trip begin with the permutes that ended the trip before. The first trip is written before the loop."""
    first = peel_first(counted, builder)
    elements = [first[x] for x in counted.loop.body.root.operands]
    for one in carried:
        elements[one.index] = first[one.permute.operand]
    counted = begin_with(counted, elements, builder)
    for one in carried:
        _send_in_the_trip_after(counted.loop, one, builder.within(counted.loop.body))
        _send_after_the_loop(counted.loop, one, builder)
    for written in (counted.loop.body, builder.computation):
        written.remove_unused(keep=effects.of)
    return counted


def _send_in_the_trip_after(loop: Loop, one: CarriedPermute, inside: Builder) -> None:
    parameter, root = loop.body.parameters[0], loop.body.root
    reads = [user for user in parameter.users if element_index(user) == one.index]
    unsent = inside.get_tuple_element(parameter, one.index)
    sent = copy_cones([one.value], lambda x: x, inside, {one.permute.operand: unsent})
    for read in reads:
        read.replace_all_uses_with(sent[one.value])
    root.replace_operand(one.index, one.permute.operand)


def _send_after_the_loop(loop: Loop, one: CarriedPermute, builder: Builder) -> None:
    reads = [user for user in loop.instruction.users if element_index(user) == one.index]
    if not reads:
        return
    unsent = builder.get_tuple_element(loop.instruction, one.index)
    known = {one.permute.operand: unsent}
    sent = copy_cones([one.value], lambda x: loop.initial[element_index(x)], builder, known)
    for read in reads:
        read.replace_all_uses_with(sent[one.value])


def is_wasted_in_the_end(loop: Loop) -> bool:
    """Return whether a permute of the last trip receives values that are not read."""
    read_after = {element_index(user) for user in loop.instruction.users}
    root = loop.body.root
    return any(
        index not in read_after
        and root.operands.count(x) == 1
        and used_once(x)
        and match_permute(x) is not None
        for index, x in enumerate(root.operands)
    )
