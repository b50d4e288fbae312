"""All-to-alls of one array, along any of its dimensions."""

from __future__ import annotations

from spmd.hlo import HloModule, Opcode
from tests.spmd.passes.triggers.devices import (
    equal_groups,
    exchanging_mode,
    ids_of,
    meeting,
    several_devices,
)
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-to-all-decomposer")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    modes = (exchanging_mode(p) for _ in range(100))
    mode, count = next((mode, n) for mode in modes if (n := ids_of(p, mode)) > 1)
    before, behind = p.dims(0, 2, most=16), p.dims(0, 2, most=16)
    x = p.value(p.element_type(), (*before, count * p.integer(1, 2), *behind))
    attrs = meeting(p, mode, equal_groups(p, count), len(before))
    return p.module(p.after(p.b.create(Opcode.ALL_TO_ALL, (x,), attrs)))
