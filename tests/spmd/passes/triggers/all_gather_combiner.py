"""All-gathers of the same devices along one dimension, some of which need others."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import all_gather
from tests.spmd.passes.triggers.joined import joined
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-gather-combiner")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    dimension = p.integer(0, 2)
    return joined(
        p, p.element_type(), lambda operands, attrs: all_gather(p, operands, attrs), dimension
    )
