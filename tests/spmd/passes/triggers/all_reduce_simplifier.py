"""Collectives over groups of one device: reductions, and all-gathers of one array or two."""

from __future__ import annotations

from spmd.device import CollectiveGroupMode
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    equal_groups,
    ids_of,
    meeting,
    reduce_scatter,
    reducing_mode,
    reduction,
    several_devices,
)
from tests.spmd.passes.triggers.gathers import all_gather, part
from tests.spmd.passes.triggers.joined import parts
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_DEVICES = CollectiveGroupMode.FLATTENED_ID


@trigger("all-reduce-simplifier")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    alone = p.choose((_reduced, _gathered))(p)
    return p.module(*[p.after(x) for x in parts(p, alone)])


def _reduced(p: Program) -> HloInstruction:
    kind = p.element_type()
    mode = reducing_mode(p) if p.result.num_partitions == 1 else _DEVICES
    attrs = meeting(p, mode, equal_groups(p, ids_of(p, mode), (1,)))
    if p.chance():
        return all_reduce(p, [p.value(kind, p.dims())], attrs, reduction(p, kind))
    attrs = meeting(p, mode, attrs.replica_groups, 0)
    return reduce_scatter(p, [p.value(kind, p.dims(1))], attrs, reduction(p, kind))


def _gathered(p: Program) -> HloInstruction:
    replicas = [CollectiveGroupMode.CROSS_REPLICA] if p.result.replica_count > 1 else []
    mode = p.choose([_DEVICES, *replicas])
    kind = p.element_type()
    operands = [part(p, kind) for _ in range(p.integer(1, 2))]
    return all_gather(p, operands, meeting(p, mode, equal_groups(p, ids_of(p, mode), (1,)), 0))
