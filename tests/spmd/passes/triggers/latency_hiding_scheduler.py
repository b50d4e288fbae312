"""Schedules with a collective that waits beside work that does not need it."""

from __future__ import annotations

from collectives.passes.async_creation import AsyncCreation
from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import HloModule, Opcode, Stage
from spmd.ops.attrs import DotAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.devices import device_total, several_devices
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger(
    "latency-hiding-scheduler", again="the order that was found is where the next search begins"
)
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    matrix = ArrayShape(PrimitiveType.F32, (8, 8))
    x, y = p.parameter(matrix), p.parameter(matrix)
    dims = DotAttrs((1,), (0,))
    groups = ReplicaGroups((tuple(range(device_total(p))),))
    if p.chance():
        met = p.b.all_reduce(x, groups, ReductionKind.MAX)
        product = p.b.dot(y, y, dims)
    else:
        product = p.b.dot(y, y, dims)
        met = p.b.all_reduce(x, groups, ReductionKind.MAX)
    module = p.module(p.b.binary(Opcode.ADD, met, product))
    module.stage = Stage.SCHEDULED
    AsyncCreation().run(module)
    return module
