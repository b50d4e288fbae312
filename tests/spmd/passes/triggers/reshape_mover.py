"""Elementwise operations on values that are all reshaped, or all transposed, in one way."""

from __future__ import annotations

import math

from spmd.hlo import HloInstruction, HloModule, Opcode
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_BINARY = (Opcode.ADD, Opcode.MULTIPLY, Opcode.SUBTRACT)


@trigger("reshape-mover")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims(2, 4)
    order = p.shuffled(range(len(dims)))
    transposes = p.chance()

    def moved(x: HloInstruction) -> HloInstruction:
        return p.b.transpose(x, order) if transposes else p.b.reshape(x, [1, math.prod(dims)])

    x = p.b.binary(p.choose(_BINARY), moved(p.value(kind, dims)), moved(p.value(kind, dims)))
    results = [x]
    for _ in range(p.integer(0, 3)):
        scalar = p.b.broadcast_scalar(p.value(kind, ()), x.dims)
        other = p.choose((x, scalar, moved(p.value(kind, dims))))
        x = p.b.binary(p.choose(_BINARY), *p.shuffled((x, other)))
        if p.chance(0.3):
            results.append(p.b.reshape(x, [math.prod(dims)]))
    results.append(x)
    return p.module(*results)
