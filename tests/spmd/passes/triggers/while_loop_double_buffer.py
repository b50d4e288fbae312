"""Loops of an array that is computed of itself, turned round or moved along, and of another value."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger(
    "while-loop-double-buffer",
    again="of two trips in one the second one is a stencil of the first one's",
)
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), (p.integer(2, 5), p.integer(2, 5))

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        x, y = elements
        moved = b.reverse(x, (p.integer(0, 1),))
        if p.chance():
            moved = b.add(moved, y)
        return [b.subtract(moved, x) if p.chance() else moved, y]

    loop = counted_loop(p, p.integer(2, 9), [p.value(kind, dims) for _ in range(2)], body)
    return p.module(*results(p, loop, *p.some((0, 1), at_least=1)))
