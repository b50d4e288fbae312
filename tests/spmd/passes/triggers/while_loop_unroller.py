"""Loops of a counter and two values that depend on each other from trip to trip."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger(
    "while-loop-unroller",
    options="factor=3,collectives=false",
    again="an unrolled loop has trips again, until they are fewer than the factor",
)
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims()

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        x, y, z = elements
        return [b.add(y, z), b.subtract(x, z) if p.chance() else x, z]

    loop = counted_loop(p, p.integer(3, 14), [p.value(kind, dims) for _ in range(3)], body)
    return p.module(*results(p, loop, *p.some((0, 1, 2), at_least=1)))
