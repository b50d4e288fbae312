"""All-reduces of which each member of a group takes another slice, in any order, behind reshapes and conversions."""

from __future__ import annotations

import math

from spmd.device import CollectiveGroupMode
from spmd.hlo import HloInstruction, HloModule
from spmd.ops.groups import device_groups
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    device_total,
    differing_scalar,
    equal_groups,
    ids_of,
    meeting,
    reducing_mode,
    reduction,
    several_devices,
    table_by_device,
)
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("reduce-scatter-creator")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    kind, mode = p.element_type(), reducing_mode(p)
    count = ids_of(p, mode)
    sizes = [n for n in range(2, count + 1) if count % n == 0]
    groups = equal_groups(p, count, sizes)
    members = groups.group_size(count)
    if mode is CollectiveGroupMode.CROSS_REPLICA_AND_PARTITION:
        members *= p.result.num_partitions
    part = p.integer(1, 3)
    before, behind = p.dims(0, 1, empty=False), p.dims(0, 1, empty=False)
    dims = (*before, members * part, *behind)
    moved = p.shuffled(range(len(dims)))
    whole = [0] * len(dims)
    for i, d in enumerate(moved):
        whole[d] = dims[i]
    combined = reduction(p, kind)
    x = all_reduce(p, [p.value(kind, whole)], meeting(p, mode, groups), combined)
    results = (
        [p.b.reduce(x, range(len(whole)), combined)]
        if math.prod(dims) > 2 and p.chance(0.3)
        else []
    )
    devices = device_groups(x, p.result.num_partitions, p.result.replica_count)
    x = p.b.transpose(x, moved)
    if p.chance(0.3):
        x = p.b.convert(x, PrimitiveType.F32) if not kind.is_complex else x
    dims = (1, *dims) if p.chance(0.3) else dims
    x = p.b.reshape(x, dims) if len(dims) > x.array_shape.rank else x
    cut = dims.index(members * part, len(dims) - 1 - len(behind))
    start = _start(p, devices, part)
    zero = p.b.scalar_like(start, 0)
    starts = [start if d == cut else zero for d in range(len(dims))]
    kept = [part if d == cut else n for d, n in enumerate(dims)]
    results += [p.b.dynamic_slice(x, starts, kept) for _ in range(p.integer(1, 2))]
    return p.module(*map(p.after, results))


def _start(p: Program, groups: tuple[tuple[int, ...], ...], part: int) -> HloInstruction:
    """Return the start of a device's slice; the members of each group take all parts."""
    plain = [tuple(range(group[0], group[0] + len(group))) for group in groups]
    if plain == list(groups) and p.chance():
        members = p.b.scalar(PrimitiveType.S32, len(groups[0]))
        place = p.b.remainder(differing_scalar(p), members)
        return p.b.multiply(place, p.b.scalar(PrimitiveType.S32, part))
    starts = [0] * device_total(p)
    for group in groups:
        order = p.shuffled(group) if p.chance() else group
        for place, device in enumerate(order):
            starts[device] = place * part
    return table_by_device(p, starts)
