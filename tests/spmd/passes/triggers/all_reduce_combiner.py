"""All-reduces of one reducer and the same devices, some of which need others."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.spmd.passes.triggers.devices import all_reduce, reduction, several_devices
from tests.spmd.passes.triggers.joined import joined
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-reduce-combiner")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind = p.element_type()
    combined = reduction(p, kind)
    return joined(p, kind, lambda operands, attrs: all_reduce(p, operands, attrs, combined))
