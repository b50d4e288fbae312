"""Sums of two to four reduce-scatters of the same devices along one dimension."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.devices import (
    device_total,
    equal_groups,
    ids_of,
    meeting,
    reduce_scatter,
    reducing_mode,
    reduction,
    rewritten,
    several_devices,
)
from tests.spmd.passes.triggers.reassociated import in_a_row
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("reduce-scatter-reassociate")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind, mode = p.element_type(), reducing_mode(p)
    count, combined = ids_of(p, mode), reduction(p, kind)
    groups, dimension = equal_groups(p, count), p.integer(0, 1)
    cut = device_total(p) * p.integer(1, 2)
    dims = [*p.dims(dimension, dimension, most=16), cut, *p.dims(0, 1)]

    def reduced() -> HloInstruction:
        attrs = meeting(p, mode, rewritten(p, groups, count), dimension)
        return reduce_scatter(p, [p.value(kind, dims)], attrs, combined)

    return p.module(p.after(in_a_row(p, [reduced() for _ in range(p.integer(2, 4))], combined)))
