"""Loops over stacked arrays: one layer's is gathered in each trip, or what a trip makes is reduced into its layer."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import HloInstruction, HloModule
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_S32, _DEVICES = PrimitiveType.S32, 4


@trigger("collective-pipeliner", options="min-bytes=1")
def modules(rng: Rng) -> HloModule:
    p = Program(rng, _DEVICES)
    kind = p.element_type((PrimitiveType.F32, PrimitiveType.S32, PrimitiveType.F64))
    layers, rows, columns = p.integer(1, 6), p.integer(1, 4), p.integer(1, 4)
    groups = ReplicaGroups(p.choose((((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3)))))
    members = groups.group_size(_DEVICES)
    gathers = p.chance(0.7)
    reduces = not gathers or p.chance(0.7)
    by_device = p.chance(0.3)

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        counter, x, weights, gradients = elements
        place = [counter, *[b.scalar(_S32, 0)] * 2]
        if by_device:
            place[1] = b.convert(b.partition_id(), _S32)
        layer = b.reshape(b.dynamic_slice(weights, place, (1, rows, columns)), (rows, columns))
        if gathers:
            layer = b.all_gather(b.negate(layer) if p.chance() else layer, groups, 0)
            layer = b.slice(layer, (0, 0), (rows, columns))
        x = b.add(b.multiply(x, x) if kind.is_integer else x, layer)
        if reduces:
            sums = b.all_reduce(b.multiply(x, layer), groups, ReductionKind.SUM)
            own = b.reshape(b.negate(sums) if p.chance() else sums, (1, rows, columns))
            gradients = b.dynamic_update_slice(gradients, own, place)
        return [b.add(counter, b.scalar(_S32, 1)), x, weights, gradients]

    assert members > 1
    stack = (layers, rows, columns)
    initial = [
        p.b.scalar(_S32, 0),
        p.value(kind, (rows, columns)),
        p.value(kind, stack),
        p.value(kind, stack),
    ]
    loop = counted_loop(p, p.integer(2, 6), initial, body)
    return p.module(*results(p, loop, *p.some((1, 2, 3), at_least=1)))
