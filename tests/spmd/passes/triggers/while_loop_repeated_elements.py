"""Loops that carry a value twice: unchanged, updated alike, or made from one another alike."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("while-loop-repeated-elements")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims()
    twice, other = p.value(kind, dims), p.value(kind, dims)
    form = p.choose(("unchanged", "alike", "in turn"))
    swapped = p.chance()

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        x, y, z = elements
        if form == "unchanged":
            return [x, y, b.add(b.multiply(x, y), z)]
        if form == "alike":
            return [b.add(x, z), b.add(z, y) if swapped else b.add(y, z), z]
        return [b.multiply(y, z), b.multiply(x, z), b.add(x, z)]

    loop = counted_loop(p, p.integer(0, 4), [twice, twice, other], body)
    return p.module(*results(p, loop, *p.choose(((0, 1), (1,), (1, 2)))))
