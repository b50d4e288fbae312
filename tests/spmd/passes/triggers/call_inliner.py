"""Calls: of one computation once or several times, in one another, with operands used more than once."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloInstruction, HloModule
from spmd.shape import ArrayShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("call-inliner")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    shape = p.shape()
    callee = _callee(p, shape)
    if p.chance():
        callee = _caller(p, shape, callee)
    x = p.value(shape.element_type, shape.dims)
    results: list[HloInstruction] = []
    for _ in range(p.integer(1, 3)):
        x = p.b.call(callee, [x, p.choose([x, *results])])
        results.append(p.after(x))
    return p.module(*p.some(results, at_least=1), x)


def _callee(p: Program, shape: ArrayShape) -> HloComputation:
    b, (x, y) = p.computation("callee", shape, shape)
    forms = (x, b.add(x, y), b.subtract(b.negate(y), x), b.multiply(x, x))
    return p.returns(p.choose(forms))


def _caller(p: Program, shape: ArrayShape, callee: HloComputation) -> HloComputation:
    b, (x, y) = p.computation("caller", shape, shape)
    return p.returns(b.call(callee, [b.call(callee, [y, x]), y]))
