"""Loops that run not at all or once, that hand an element on unchanged, or carry one that nobody reads."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger(
    "while-loop-simplifier",
    again="an element that was read outside alone is dead once its reader is forwarded",
)
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims()
    values = [p.value(kind, dims) for _ in range(3)]
    form = p.choose(("few trips", "invariant", "dead"))

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        x, y, z = elements
        return {
            "few trips": [b.add(x, y), b.negate(x), z],
            "invariant": [b.subtract(x, y), y, b.add(z, x)],
            "dead": [b.add(x, y), b.negate(y), b.multiply(z, x)],
        }[form]

    loop = counted_loop(
        p, p.integer(0, 1) if form == "few trips" else p.integer(2, 4), values, body
    )
    wanted = {
        "few trips": p.some((0, 1, 2), at_least=1),
        "invariant": [1, *p.some((0, 2))],
        "dead": p.some((0, 1), at_least=1),
    }[form]
    return p.module(*results(p, loop, *wanted))
