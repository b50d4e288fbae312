"""Take the first or the last trip out of a loop, which runs once less: a copy of its body stands before or behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spmd.analysis.side_effects import SideEffects
from spmd.analysis.trip_count import counting, induction_variable, trip_count
from spmd.analysis.value_trace import holds_integer
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.passes.rewrite import is_pinned
from spmd.passes.while_loop_trip_count_annotator import forget_trip_count
from spmd.passes.while_state import (
    Loop,
    element_index,
    is_element_of,
    result_has_only_element_reads,
)
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True)
class Counter:
    """A scalar element of a loop's state that is ``init + n * step`` before trip n."""

    index: int
    init: int
    step: int
    element_type: PrimitiveType

    def at(self, trip: int) -> int:
        return self.init + trip * self.step


@dataclass(frozen=True)
class CountedLoop:
    """A loop that runs ``trips`` times and whose result is read by get-tuple-elements only.

    counters: by their index in the state. variable: the index of the one that the condition reads.
    """

    loop: Loop
    trips: int
    variable: int
    counters: dict[int, Counter]

    def carrying(self, loop: Loop) -> CountedLoop:
        """Return the same loop with more elements in its state."""
        return replace(self, loop=loop)


def match_counted(loop: Loop) -> CountedLoop | None:
    """Return the loop with its trip count if it has at least two trips. Returns None if the count is unknown, or if the
    loop's result or the body's root is pinned.
    """
    trips, variable = trip_count(loop.instruction), induction_variable(loop.instruction)
    if trips is None or trips < 2 or variable is None or not result_has_only_element_reads(loop):
        return None
    if any(is_pinned(user) for user in loop.instruction.users) or is_pinned(loop.body.root):
        return None
    found = (_counter(loop, index, trips) for index in range(loop.size))
    counters = {counter.index: counter for counter in found if counter is not None}
    if variable.index not in counters:
        return None
    return CountedLoop(loop, trips, variable.index, counters)


def _counter(loop: Loop, index: int, trips: int) -> Counter | None:
    shape = loop.initial[index].shape
    if not isinstance(shape, ArrayShape) or shape.dims or not shape.element_type.is_integer:
        return None
    counted = counting(loop.instruction, index)
    if counted is None or not counted[1]:
        return None
    counter = Counter(index, *counted, shape.element_type)
    return counter if holds_integer(shape.element_type, counter.at(trips)) else None


def peel_first(counted: CountedLoop, builder: Builder) -> dict[HloInstruction, HloInstruction]:
    """Write the first trip before the loop. Returns the copies of the body's values.

    The caller must make the loop start from the state after this trip (``begin_with``).
    """
    return write_trip(counted.loop, counted.loop.initial, builder)


def begin_with(
    counted: CountedLoop, elements: Sequence[HloInstruction], builder: Builder
) -> CountedLoop:
    """Remove the first trip, written before the loop by ``peel_first``. The loop starts from the state ``elements``."""
    shifted = {k: replace(c, init=c.at(1)) for k, c in counted.counters.items()}
    initial = list(elements)
    for k, counter in shifted.items():
        initial[k] = builder.scalar(counter.element_type, counter.init)
    state, instruction = builder.tuple(initial), counted.loop.instruction
    instruction.replace_operand(0, state)
    forget_trip_count(instruction)
    loop = Loop(instruction, state.operands)
    return replace(counted, loop=loop, trips=counted.trips - 1, counters=shifted)


def peel_last(counted: CountedLoop, builder: Builder, effects: SideEffects) -> CountedLoop:
    """Remove the last trip from the loop and write it after the loop, with constants for the counters. Users of the
    loop read the results of that trip.
    """
    loop = counted.loop
    users = loop.instruction.users
    _end_before(counted, builder)
    left = [
        builder.scalar(counter.element_type, counter.at(counted.trips - 1))
        if (counter := counted.counters.get(i)) is not None
        else builder.get_tuple_element(loop.instruction, i)
        for i in range(loop.size)
    ]
    trip = write_trip(loop, left, builder)
    for user in users:
        assert user.parent is not None
        user.parent.replace(user, trip[loop.next_value(element_index(user))])
    builder.computation.remove_unused(keep=effects.of)
    return replace(counted, trips=counted.trips - 1)


def _end_before(counted: CountedLoop, builder: Builder) -> None:
    """Stop where the last trip would begin."""
    condition, counter = counted.loop.condition, counted.counters[counted.variable]
    inside = builder.within(condition)
    value = inside.get_tuple_element(condition.parameters[0], counter.index)
    limit = inside.scalar(counter.element_type, counter.at(counted.trips - 1))
    condition.root = inside.compare(value, limit, "LT" if counter.step > 0 else "GT")
    condition.remove_unused()
    forget_trip_count(counted.loop.instruction)


def write_trip(
    loop: Loop, elements: Sequence[HloInstruction], builder: Builder
) -> dict[HloInstruction, HloInstruction]:
    """Write one trip of the body for state ``elements``. Returns the copies of its values."""
    return write_trips(loop, elements, builder, 1)[0]


def write_trips(
    loop: Loop, elements: Sequence[HloInstruction], builder: Builder, count: int
) -> list[dict[HloInstruction, HloInstruction]]:
    """Write several trips one after the other; ``builder`` may write into the body itself. Returns the copies of each
    trip.

    Control edges are copied with the instructions that they order, except those from the state, which exists when a
    trip begins.
    """
    parameter, root = loop.body.parameters[0], loop.body.root
    order = [x for x in loop.body.post_order() if x is not parameter and x is not root]
    trips: list[dict[HloInstruction, HloInstruction]] = []
    for _ in range(count):
        copies: dict[HloInstruction, HloInstruction] = {}
        for x in order:
            if is_element_of(x, parameter):
                copies[x] = elements[element_index(x)]
                continue
            copies[x] = builder.clone(x, [copies[operand] for operand in x.operands])
            for before in x.control_predecessors:
                if before is not parameter and not is_element_of(before, parameter):
                    copies[before].add_control_dependency_to(copies[x])
        trips.append(copies)
        elements = [copies[x] for x in root.operands]
    return trips
