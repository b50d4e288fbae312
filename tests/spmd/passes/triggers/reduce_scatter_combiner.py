"""Reduce-scatters along one dimension, of one reducer and the same devices, some of which need others."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.spmd.passes.triggers.devices import reduce_scatter, reduction, several_devices
from tests.spmd.passes.triggers.joined import joined
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("reduce-scatter-combiner")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind = p.element_type()
    combined, dimension = reduction(p, kind), p.integer(0, 1)
    return joined(
        p, kind, lambda operands, attrs: reduce_scatter(p, operands, attrs, combined), dimension
    )
