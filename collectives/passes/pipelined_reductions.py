"""Collectives whose results are only put into an array that grows trip by trip: moved into the trip after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collectives.passes.pipelined_gathers import determined_by_trip
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.loop_peeling import CountedLoop, begin_with, peel_first
from spmd.passes.loop_values import copy_cones
from spmd.passes.rewrite import is_pinned
from spmd.passes.while_state import add_elements, element_index, is_element_of
from spmd.shape import ArrayShape

_STAY = (Opcode.PARAMETER, Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL, Opcode.OPT_BARRIER)


@dataclass(frozen=True)
class Reduction:
    """State element ``element`` becomes ``update``, a dynamic-update-slice of it by what is computed of ``operand``
    alone, collectives first.
    """

    element: int
    update: HloInstruction
    operand: HloInstruction


def reductions_to_move(
    counted: CountedLoop, effects: SideEffects, min_bytes: int
) -> list[Reduction]:
    determined = determined_by_trip(counted, effects)
    found = (_reduction(counted, k, determined, effects) for k in range(counted.loop.size))
    return [x for x in found if x is not None and x.operand.shape.byte_size >= min_bytes]


def _reduction(
    counted: CountedLoop,
    element: int,
    determined: Mapping[HloInstruction, None],
    effects: SideEffects,
) -> Reduction | None:
    loop = counted.loop
    update, root = loop.next_value(element), loop.body.root
    if update.opcode is not Opcode.DYNAMIC_UPDATE_SLICE or is_pinned(update):
        return None
    array, value, *starts = update.operands
    parameter = loop.body.parameters[0]
    if not is_element_of(array, parameter) or element_index(array) != element:
        return None
    reads = [x for x in parameter.users if element_index(x) == element]
    if len(reads) != 1 or array.users != (update,) or update.users != (root,):
        return None
    if root.operands.count(update) != 1 or any(start not in determined for start in starts):
        return None
    operand = _operand_of_first_collective(value, determined, effects)
    if operand is None or not isinstance(operand.shape, ArrayShape):
        return None
    # A value of the previous trip is moved already.
    return None if is_element_of(operand, parameter) else Reduction(element, update, operand)


def _operand_of_first_collective(
    value: HloInstruction, determined: Mapping[HloInstruction, None], effects: SideEffects
) -> HloInstruction | None:
    """Return the operand of the first collective in the chain that ends with ``value``. Each value of the chain has one
    user and depends on one value that the trip's number does not determine.
    """
    found = None
    while value.num_users == 1 and value.opcode not in _STAY:
        if is_pinned(value) or effects.of(value) or not isinstance(value.shape, ArrayShape):
            break
        own = [x for x in value.operands if x not in determined]
        if len(own) != 1:
            break
        if value.opcode in KIND:
            found = own[0]
        value = own[0]
    return found


def reduce_later(
    counted: CountedLoop,
    reductions: Sequence[Reduction],
    builder: Builder,
    effects: SideEffects,
) -> CountedLoop:
    """Move each reduction into the next trip, that of the last trip after the loop; the first trip is written before
    it. Returns the new loop.
    """
    old, users = counted.loop, counted.loop.instruction.users
    trip = peel_first(counted, builder)
    initial = [trip[x] for x in old.body.root.operands]
    for reduction in reductions:
        initial[reduction.element] = old.initial[reduction.element]
    counted = begin_with(counted, initial, builder)
    loop, carried = add_elements(counted.loop, [trip[x.operand] for x in reductions], builder)
    counted = counted.carrying(loop)
    _reduce_trip_before(counted, reductions, carried, builder)
    _reduce_last(counted, reductions, carried, users, builder)
    loop.body.remove_unused(keep=effects.of)
    builder.computation.remove_unused(keep=effects.of)
    return counted


def _reduce_trip_before(
    counted: CountedLoop,
    reductions: Sequence[Reduction],
    carried: Sequence[HloInstruction],
    builder: Builder,
) -> None:
    """Write the reductions of the previous trip into the body. ``carried``: their operands, as the body reads them."""
    body = counted.loop.body
    inside = builder.within(body)

    def element(x: HloInstruction) -> HloInstruction:
        counter = counted.counters.get(element_index(x))
        if counter is None:
            return x
        step = inside.scalar(counter.element_type, abs(counter.step))
        return inside.subtract(x, step) if counter.step > 0 else inside.add(x, step)

    for reduction, left in zip(reductions, carried, strict=True):
        made = copy_cones([reduction.update], element, inside, {reduction.operand: left})
        body.root.replace_operand(reduction.element, made[reduction.update])
        body.root.replace_operand(element_index(left), reduction.operand)


def _reduce_last(
    counted: CountedLoop,
    reductions: Sequence[Reduction],
    carried: Sequence[HloInstruction],
    users: Sequence[HloInstruction],
    builder: Builder,
) -> None:
    """Write the reductions of the last trip after the loop, for those of its ``users`` that read the results."""
    loop = counted.loop.instruction

    def element(x: HloInstruction) -> HloInstruction:
        counter = counted.counters.get(element_index(x))
        if counter is None:
            return builder.get_tuple_element(loop, element_index(x))
        return builder.scalar(counter.element_type, counter.at(counted.trips - 1))

    for reduction, left in zip(reductions, carried, strict=True):
        last = builder.get_tuple_element(loop, element_index(left))
        made = copy_cones([reduction.update], element, builder, {reduction.operand: last})
        for user in users:
            if element_index(user) == reduction.element:
                assert user.parent is not None
                user.parent.replace(user, made[reduction.update])
