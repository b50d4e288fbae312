"""Reduce-scatters of one array or two along any dimension."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.spmd.passes.triggers.devices import (
    device_total,
    equal_groups,
    ids_of,
    meeting,
    reduce_scatter,
    reducing_mode,
    reduction,
    several_devices,
)
from tests.spmd.passes.triggers.joined import parts
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("reduce-scatter-decomposer")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind, mode, dimension = p.element_type(), reducing_mode(p), p.integer(0, 2)
    attrs = meeting(p, mode, equal_groups(p, ids_of(p, mode)), dimension)
    operands = []
    for _ in range(p.integer(1, 2)):
        dims = list(p.dims(dimension + 1, 3, most=24))
        dims[dimension] = device_total(p) * p.integer(1, 2)
        operands.append(p.value(kind, dims))
    results = parts(p, reduce_scatter(p, operands, attrs, reduction(p, kind)))
    return p.module(*map(p.after, p.some(results, at_least=1)))
