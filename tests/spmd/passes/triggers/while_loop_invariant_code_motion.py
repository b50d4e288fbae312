"""Loops whose bodies compute something of elements that never change."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule, Opcode
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("while-loop-invariant-code-motion")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims()
    values = [p.value(kind, dims) for _ in range(3)]

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        x, c, d = elements
        invariant = b.multiply(c, d) if p.chance() else b.unary(Opcode.NEGATE, c)
        if p.chance():
            invariant = b.add(invariant, d)
        if dims and p.chance(0.3):
            order = p.shuffled(range(len(dims)))
            back = [order.index(d) for d in range(len(dims))]
            invariant = b.transpose(b.negate(b.transpose(invariant, order)), back)
        return [b.add(x, invariant), c, d]

    loop = counted_loop(p, p.integer(0, 4), values, body)
    return p.module(*results(p, loop, *p.some((0, 1, 2), at_least=1)))
