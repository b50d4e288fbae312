"""Loops, branches and calls that share computations, also below shared ones."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloInstruction, HloModule
from spmd.shape import ArrayShape, PrimitiveType, TupleShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_COUNTER = ArrayShape(PrimitiveType.S32, ())


@trigger("flatten-call-graph")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    shape = ArrayShape(p.element_type(), p.dims())
    step = _step(p, shape)
    if p.chance():
        inside, (x,) = p.computation("twice", shape)
        step = p.returns(inside.call(step, [inside.call(step, [x])]))
    make = p.choose((_calls, _branches, _loops))
    return p.module(*make(p, shape, step))


def _step(p: Program, shape: ArrayShape) -> HloComputation:
    inside, (x,) = p.computation("step", shape)
    return p.returns(inside.add(inside.multiply(x, x), x))


def _calls(p: Program, shape: ArrayShape, step: HloComputation) -> list[HloInstruction]:
    return [p.b.call(step, [p.parameter(shape)]) for _ in range(p.integer(2, 4))]


def _branches(p: Program, shape: ArrayShape, step: HloComputation) -> list[HloInstruction]:
    """Both branches of a conditional may be one computation."""
    selector = p.parameter(ArrayShape(PrimitiveType.PRED, ()))
    inside, (x,) = p.computation("as_it_is", shape)
    other = p.returns(inside.copy(x))
    first = p.b.conditional(selector, [step, step], [p.parameter(shape), p.parameter(shape)])
    return [first, p.b.conditional(selector, [other, step], [first, p.parameter(shape)])]


def _loops(p: Program, shape: ArrayShape, step: HloComputation) -> list[HloInstruction]:
    state = TupleShape((_COUNTER, shape))
    inside, (s,) = p.computation("more", state)
    bound = inside.scalar(PrimitiveType.S32, p.integer(0, 3))
    more = p.returns(inside.compare(inside.get_tuple_element(s, 0), bound, "LT"))
    inside, (s,) = p.computation("body", state)
    one = inside.scalar(PrimitiveType.S32, 1)
    count = inside.add(inside.get_tuple_element(s, 0), one)
    body = p.returns(inside.tuple([count, inside.call(step, [inside.get_tuple_element(s, 1)])]))
    zero = p.b.scalar(PrimitiveType.S32, 0)
    return [
        p.b.get_tuple_element(p.b.while_loop(p.b.tuple([zero, p.parameter(shape)]), more, body), 1)
        for _ in range(p.integer(2, 3))
    ]
