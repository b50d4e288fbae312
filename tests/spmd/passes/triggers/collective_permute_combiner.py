"""Permutes along the same ways, some of which need others."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import part
from tests.spmd.passes.triggers.joined import parts
from tests.spmd.passes.triggers.permutes import exchanging_ids, permute, some_pairs
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("collective-permute-combiner")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    mode, count = exchanging_ids(p)
    pairs = some_pairs(p, count)
    results: list[HloInstruction] = []
    for i in range(p.integer(2, 5)):
        operands = [part(p, p.element_type()) for _ in range(p.choose((1, 1, 2)))]
        if i > 1 and p.chance(0.4):
            operands.append(p.b.negate(p.choose(results)))
        results.extend(parts(p, permute(p, operands, p.shuffled(pairs), mode)))
    return p.module(*p.shuffled([p.after(x) for x in results]))
