"""Loops that carry constants unchanged and read them in the body."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("while-loop-constant-sinking")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims(most=32)
    value = p.value(kind, dims)
    constant = (
        p.b.broadcast_scalar(p.constant(kind, ()), dims) if p.chance() else p.constant(kind, dims)
    )

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        x, c = elements
        return [b.subtract(x, c) if p.chance() else b.add(b.negate(c), x), c]

    loop = counted_loop(p, p.integer(0, 4), [value, constant], body)
    return p.module(*results(p, loop, *p.some((0, 1), at_least=1)))
