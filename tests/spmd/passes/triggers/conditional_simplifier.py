"""Conditionals whose selector is a constant: pred or s32, in range or not."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloModule, Opcode
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("conditional-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    shape = p.shape()
    predicated = p.chance()
    branches = [_branch(p, shape, i) for i in range(2 if predicated else p.integer(1, 4))]
    kind = PrimitiveType.PRED if predicated else PrimitiveType.S32
    value = p.chance() if predicated else p.integer(-2, len(branches) + 2)
    operands = [p.value(shape.element_type, shape.dims) for _ in branches]
    chosen = p.b.conditional(p.b.scalar(kind, value), branches, operands)
    return p.module(p.after(chosen), *p.some(operands))


def _branch(p: Program, shape: ArrayShape, number: int) -> HloComputation:
    b, (x,) = p.computation(f"branch_{number}", shape)
    forms = (
        lambda: x,
        lambda: b.unary(Opcode.NEGATE, x),
        lambda: b.add(x, b.full(shape, number + 1)),
        lambda: b.full(shape, number),
    )
    return p.returns(p.choose(forms)())
