"""While loops of a counter and random elements, for the triggers of passes about loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.programs import Program

#: A function that writes the next values of a loop's elements (without the counter), given a builder and the elements.
Body = Callable[[Builder, list[HloInstruction]], Sequence[HloInstruction]]


def counted_loop(
    p: Program, trips: int, initial: Sequence[HloInstruction], body: Body
) -> HloInstruction:
    """A while whose state is (s32[] counter, *initial) and whose body runs ``trips`` times."""
    start, step = p.integer(-2, 3), p.choose((1, 1, 2))
    limit = start + trips * step
    state = p.b.tuple([p.b.scalar(PrimitiveType.S32, start), *initial])
    return p.b.while_loop(state, _condition(p, state, limit), _body(p, state, step, body))


def _condition(p: Program, state: HloInstruction, limit: int) -> HloComputation:
    b, (parameter,) = p.computation("condition", state.shape)
    counter = b.get_tuple_element(parameter, 0)
    return p.returns(b.compare(counter, b.scalar(PrimitiveType.S32, limit), "LT"))


def _body(p: Program, state: HloInstruction, step: int, body: Body) -> HloComputation:
    b, (parameter,) = p.computation("body", state.shape)
    counter, *elements = (b.get_tuple_element(parameter, i) for i in range(state.num_operands))
    following = b.add(counter, b.scalar(PrimitiveType.S32, step))
    return p.returns(b.tuple([following, *body(b, elements)]))


def results(p: Program, loop: HloInstruction, *wanted: int) -> list[HloInstruction]:
    """Elements ``wanted`` (counted without the counter) after the loop."""
    return [p.b.get_tuple_element(loop, 1 + i) for i in wanted]
