"""Reductions over devices that meet themselves alone, or that all have the value that is reduced."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.device import CollectiveGroupMode, IotaTile, ReductionKind
from spmd.hlo import HloInstruction, HloModule
from spmd.shape import ArrayShape, PrimitiveType
from spmd.sharding import HloSharding, SubgroupType, TileAssignment
from tests.spmd.passes.triggers.devices import (
    all_reduce,
    along_axis,
    device_total,
    equal_groups,
    ids_of,
    meeting,
    reduce_scatter,
    reducing_mode,
    reduction,
    several_devices,
)
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import FLOATS, INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_DEVICES = CollectiveGroupMode.FLATTENED_ID


@trigger("all-reduce-simplifier")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    return p.module(p.after(p.choose((_alone, _of_equal_values))(p)))


def _alone(p: Program) -> HloInstruction:
    kind = p.element_type()
    mode = reducing_mode(p) if p.result.num_partitions == 1 else _DEVICES
    attrs = meeting(p, mode, equal_groups(p, ids_of(p, mode), (1,)))
    if p.chance():
        return all_reduce(p, [p.value(kind, p.dims())], attrs, reduction(p, kind))
    attrs = meeting(p, mode, attrs.replica_groups, 0)
    return reduce_scatter(p, [p.value(kind, p.dims(1))], attrs, reduction(p, kind))


def _of_equal_values(p: Program) -> HloInstruction:
    kind = p.element_type((*FLOATS, *INTEGERS, PrimitiveType.PRED))
    combined = reduction(p, kind)
    while combined is ReductionKind.PRODUCT:
        combined = reduction(p, kind)
    partitions, replicas = p.result.num_partitions, p.result.replica_count
    dims = p.dims(1, 3)
    size = p.choose([n for n in range(1, partitions + 1) if partitions % n == 0])
    axes = (replicas * (partitions // size), size, 1)
    x = p.choose((_handed_in, _met_before))(p, ArrayShape(kind, dims), size)
    if p.chance(0.3):
        x = _carried(p, x)
    return all_reduce(p, [x], meeting(p, _DEVICES, along_axis(p, axes)), combined)


def _handed_in(p: Program, shape: ArrayShape, size: int) -> HloInstruction:
    """A parameter that ``size`` neighbouring partitions have the same tile of, or something made of it."""
    x = p.parameter(shape)
    count = p.result.num_partitions // size
    tiles = TileAssignment(IotaTile.of((count, *(1,) * (len(shape.dims) - 1), size)))
    x.sharding = (
        HloSharding.replicated()
        if count == 1
        else HloSharding.tiled(tiles, (SubgroupType.REPLICATED,))
    )
    if shape.element_type is PrimitiveType.PRED:
        return x
    other = p.constant(shape.element_type, shape.dims)
    return p.choose((x, p.b.negate(x), p.b.add(x, other)))


def _met_before(p: Program, shape: ArrayShape, size: int) -> HloInstruction:
    """The result of a reduction among neighbours, or of one among all."""
    wide = p.choose(
        [n for n in range(size, device_total(p) + 1) if device_total(p) % n == n % size == 0]
    )
    attrs = meeting(p, _DEVICES, along_axis(p, (device_total(p) // wide, wide, 1)))
    x = p.value(shape.element_type, shape.dims)
    return all_reduce(p, [x], attrs, reduction(p, shape.element_type))


def _carried(p: Program, x: HloInstruction) -> HloInstruction:
    """Through a loop that makes something of it in every trip."""

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        (state,) = elements
        return [b.maximum(state, b.reverse(state, [0]))]

    loop = counted_loop(p, p.integer(0, 3), [x], body)
    return results(p, loop, 0)[0]
