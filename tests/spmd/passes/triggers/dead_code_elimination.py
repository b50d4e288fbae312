"""Values and computations that nobody uses."""

from __future__ import annotations

from spmd.hlo import HloModule, Opcode
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("dead-code-elimination")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    values = [p.value(p.element_type(), p.dims()) for _ in range(p.integer(1, 4))]
    kept = p.some(values, at_least=1)
    for x in p.some(values, at_least=1):
        p.b.unary(Opcode.NEGATE, p.after(x))
    if p.chance():
        _, (x,) = p.computation("called_in_vain", kept[0].shape)
        p.b.call(p.returns(x), [kept[0]])
    if p.chance(0.3):
        p.computation("never_called", values[0].shape)
    return p.module(*kept)
