"""Permutes that come round, in one circle or several, beside pairs that do not."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import part
from tests.spmd.passes.triggers.permutes import exchanging_ids, permute
from tests.spmd.passes.triggers.programs import ANY_TYPE
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("collective-permute-cycle-decomposer")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    mode, count = exchanging_ids(p)
    around = p.shuffled(range(count))[: p.integer(2, count)]
    pairs = list(zip(around, (*around[1:], around[0]), strict=True))
    others = [i for i in range(count) if i not in around]
    pairs.extend(p.some(list(zip(others, p.shuffled(others), strict=True))))
    x = permute(p, [part(p, p.element_type(ANY_TYPE))], p.shuffled(pairs), mode)
    return p.module(p.after(x))
