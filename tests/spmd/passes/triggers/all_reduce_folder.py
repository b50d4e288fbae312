"""All-reduces of all-reduces, whose groups together are groups again: along one axis of devices and then another."""

from __future__ import annotations

from spmd.device import CollectiveGroupMode, ReductionKind
from spmd.hlo import HloModule
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    along_axis,
    device_total,
    meeting,
    reduction,
    several_devices,
)
from tests.spmd.passes.triggers.registry import Rng, trigger

_DEVICES = CollectiveGroupMode.FLATTENED_ID
_COUNTING = (ReductionKind.SUM, ReductionKind.PRODUCT, ReductionKind.XOR)


@trigger("all-reduce-folder")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind = p.element_type()
    combined = reduction(p, kind)
    devices = device_total(p)
    first = p.choose([n for n in range(1, devices + 1) if devices % n == 0])
    then = p.choose([n for n in range(1, devices // first + 1) if devices // first % n == 0])
    rest = devices // first // then
    x = p.value(kind, p.dims(0, 3))
    groups = [along_axis(p, (rest, first, then)), along_axis(p, (rest * first, then, 1))]
    if combined not in _COUNTING and p.chance(0.3):
        groups.append(p.choose(groups))
    for one in p.shuffled(groups):
        x = all_reduce(p, [x], meeting(p, _DEVICES, one), combined)
    return p.module(p.after(x))
