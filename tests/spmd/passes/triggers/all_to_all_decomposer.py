"""All-to-alls of one array, along any of its dimensions."""

from __future__ import annotations

from spmd.hlo import HloModule, Opcode
from tests.spmd.passes.triggers.devices import (
    equal_groups,
    meeting,
    several_devices,
)
from tests.spmd.passes.triggers.permutes import exchanging_ids
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-to-all-decomposer")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    mode, count = exchanging_ids(p)
    before, behind = p.dims(0, 2, most=16), p.dims(0, 2, most=16)
    x = p.value(p.element_type(), (*before, count * p.integer(1, 2), *behind))
    attrs = meeting(p, mode, equal_groups(p, count), len(before))
    return p.module(p.after(p.b.create(Opcode.ALL_TO_ALL, (x,), attrs)))
