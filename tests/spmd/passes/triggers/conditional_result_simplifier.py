"""Conditionals of which not all elements are read, or whose branches all return a value twice."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.branches import conditional
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("conditional-result-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims()
    twice = p.chance()

    def branch(b: Builder, elements: list[HloInstruction], number: int) -> HloInstruction:
        x, y = elements
        made = (b.add, b.subtract, b.multiply)[number](x, y)
        return b.tuple([made, x, made] if twice else [x, made, y])

    operands = [[p.value(kind, dims), p.value(kind, dims)] for _ in range(p.integer(1, 3))]
    chosen = conditional(p, operands, branch)
    wanted = (0, 2, 1) if twice and p.chance() else p.choose(((0, 1), (1, 2), (1,), (0, 2)))
    return p.module(*(p.b.get_tuple_element(chosen, i) for i in wanted))
