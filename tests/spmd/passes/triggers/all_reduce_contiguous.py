"""All-reduces of two arrays or more, of any shapes."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    reduction,
    several_devices,
)
from tests.spmd.passes.triggers.joined import parts
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-reduce-contiguous")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind, mode = p.element_type(), reducing_mode(p)
    operands = [p.value(kind, p.dims(0, 3, most=64)) for _ in range(p.integer(2, 4))]
    attrs = meeting(p, mode, equal_groups(p, ids_of(p, mode)))
    results = parts(p, all_reduce(p, operands, attrs, reduction(p, kind)))
    return p.module(*map(p.after, p.some(results, at_least=1)))
