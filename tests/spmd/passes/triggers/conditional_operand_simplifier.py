"""Branches that are handed constants, a value twice, or what they do not read."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.branches import conditional
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("conditional-operand-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims(most=64)
    x, y = p.value(kind, dims), p.value(kind, dims)
    second = {
        "constant": lambda: p.constant(kind, dims),
        "repeated constant": lambda: p.b.full(x.array_shape, p.integer(0, 3)),
        "twice": lambda: x,
        "unread": lambda: p.value(kind, dims),
    }
    form = p.choose(tuple(second))
    operands = [[x, second[form](), y] for _ in range(p.integer(1, 3))]

    def branch(b: Builder, elements: list[HloInstruction], number: int) -> HloInstruction:
        first, middle, last = elements
        if form == "unread":
            return b.add(first, last)
        return (b.add, b.subtract, b.multiply)[number](b.add(first, middle), last)

    return p.module(conditional(p, operands, branch), *p.some([x, y]))
