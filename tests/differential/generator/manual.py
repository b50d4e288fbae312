"""Manual regions (shard_map) in Shardy's and in GSPMD's spelling, with collectives of their own inside.

A region takes a value split along some mesh axes, works on what one device holds, and puts the parts together again. A
value that differs along a manual axis must be split along it on the way out: all that are made here are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import Annotations, HloInstruction, Opcode
from spmd.ops.attrs import CallAttrs, CustomCallAttrs
from spmd.shape import ArrayShape, TupleShape
from spmd.sharding import HloSharding, SubgroupType, TileAssignment
from tests.differential.generator.annotations import Spec, gspmd, iota_tile, shardy
from tests.differential.generator.combining import may_sum, summed
from tests.differential.generator.control import nested_writer, write_operations
from tests.differential.generator.table import operation
from tests.differential.generator.writer import MAX_ELEMENTS, S32, U32, Value, Writer


@operation(1.5, nested=False)
def manual_region(w: Writer) -> Value | None:
    manual = w.some(list(w.mesh), 1)
    x = w.pick(lambda v: v.rank > 0 and 0 not in v.dims)
    if x is None:
        return None
    split = _manual_split(w, x.dims, manual)
    if split is None:
        return None
    if w.chance(0.5):
        x = w.annotate(w, x)
    local_dims = tuple(
        n // math.prod(w.mesh[a] for a in axes) for n, axes in zip(x.dims, split, strict=True)
    )
    varying = [a for axes in split for a in axes]
    inner, body = nested_writer(w, "manual_computation_body")
    local = inner.builder.parameter(0, ArrayShape(x.dtype, local_dims))
    inner.pool = [replace(x, hlo=local)]
    inner.may_nest = True
    inner.free_axes = [a for a in w.mesh if a not in manual]
    if not w.style.shardy:
        inner.annotate = lambda _, value: value
    varying = _write_body(inner, manual, varying)
    result = inner.pool[-1]
    # The parts must find a place: one dimension takes all axes along which they differ.
    if result.rank == 0 and varying:
        result = inner.keep(replace(result, hlo=inner.builder.reshape(result.hlo, (1,))))
    body.root = result.hlo
    out: list[tuple[str, ...]] = [()] * result.rank
    for axis in inner.shuffled(varying):
        d = inner.integer(0, result.rank - 1)
        out[d] = (*out[d], axis)
    spread = math.prod(w.mesh[a] for a in varying)
    if math.prod(result.dims) * spread > 2 * MAX_ELEMENTS:
        return None
    edges = _ShardyEdges if w.style.shardy else _GspmdEdges
    entered = edges.enter(w, manual, x.hlo, split, local_dims)
    call = w.builder.create(Opcode.CALL, (entered,), CallAttrs(), calls=(body,))
    call.annotations = Annotations(frontend_attributes=(("inlineable", "false"),))
    global_dims = tuple(
        n * math.prod(w.mesh[a] for a in axes) for n, axes in zip(result.dims, out, strict=True)
    )
    hlo = edges.leave(w, manual, call, out, global_dims)
    return w.keep(replace(result, hlo=hlo))


def _manual_split(
    w: Writer, dims: Sequence[int], manual: Sequence[str]
) -> list[tuple[str, ...]] | None:
    """Some of the manual axes on dimensions that they divide evenly."""
    split: list[tuple[str, ...]] = [()] * len(dims)
    for axis in w.shuffled(list(manual)):
        fits = [
            d
            for d, n in enumerate(dims)
            if n % (w.mesh[axis] * math.prod(w.mesh[a] for a in split[d])) == 0
        ]
        if fits and w.chance(0.8):
            d = w.choose(fits)
            split[d] = (*split[d], axis)
    return split if any(split) else None


def _write_body(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    """Operations and collectives in turn; returns the axes along which the last value differs."""
    for _ in range(w.integer(1, 3)):
        write_operations(w, w.integer(0, 2))
        if w.chance(0.8):
            write = w.choose(
                (_all_reduce, _all_gather, _rotate, _all_to_all, _reduce_scatter, _axis_index)
            )
            after = write(w, manual, varying)
            if len(after) < len(varying):
                # Older values still differ along the axes that are gone: none may come in again.
                w.pool = [w.pool[-1]]
            varying = after
    return varying


def _groups(w: Writer, axes: Sequence[str]) -> ReplicaGroups:
    """Devices that differ along ``axes`` only, listed."""
    names, sizes = list(w.mesh), list(w.mesh.values())
    chosen = [names.index(a) for a in axes]
    rest = [i for i in range(len(names)) if i not in chosen]
    ids = np.arange(math.prod(sizes)).reshape(sizes).transpose([*rest, *chosen])
    rows = ids.reshape(-1, math.prod(w.mesh[a] for a in axes))
    return ReplicaGroups(groups=tuple(tuple(int(i) for i in row) for row in rows))


def _all_reduce(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    """psum or pmax: afterwards the value is the same along the axes it ran over."""
    x = w.pool[-1]
    axes = w.some(list(manual), 1)
    count = math.prod(w.mesh[a] for a in axes)
    if x.is_float and may_sum(x, count) and w.chance(0.7):
        hlo = w.builder.all_reduce(x.hlo, _groups(w, axes), ReductionKind.SUM)
        summed(w, Value(hlo, 0.0), [x], x.bound * count)
    else:
        hlo = w.builder.all_reduce(x.hlo, _groups(w, axes), ReductionKind.MAX)
        w.keep(replace(x, hlo=hlo))
    return [a for a in varying if a not in axes]


def _all_gather(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    x, axis = w.pool[-1], w.choose(manual)
    if x.rank == 0 or math.prod(x.dims) * w.mesh[axis] > MAX_ELEMENTS:
        return varying
    hlo = w.builder.all_gather(x.hlo, _groups(w, (axis,)), w.integer(0, x.rank - 1))
    w.keep(replace(x, hlo=hlo))
    return [a for a in varying if a != axis]


def _rotate(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    """ppermute to the next device along one axis."""
    x, axis = w.pool[-1], w.choose(manual)
    pairs = [
        (group[i], group[(i + 1) % len(group)])
        for group in _groups(w, (axis,)).groups
        for i in range(len(group))
    ]
    w.keep(replace(x, hlo=w.builder.collective_permute(x.hlo, pairs)))
    return varying


def _all_to_all(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    x, axis = w.pool[-1], w.choose(manual)
    fits = [d for d, n in enumerate(x.dims) if n % w.mesh[axis] == 0]
    if fits:
        hlo = w.builder.all_to_all(x.hlo, _groups(w, (axis,)), w.choose(fits))
        w.keep(replace(x, hlo=hlo))
        return [*varying, axis] if axis not in varying else varying
    return varying


def _reduce_scatter(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    x, axis = w.pool[-1], w.choose(manual)
    fits = [d for d, n in enumerate(x.dims) if n % w.mesh[axis] == 0]
    if not fits or not x.is_float or not may_sum(x, w.mesh[axis]):
        return varying
    hlo = w.builder.reduce_scatter(x.hlo, _groups(w, (axis,)), w.choose(fits), ReductionKind.SUM)
    summed(w, Value(hlo, 0.0), [x], x.bound * w.mesh[axis])
    return [*varying, axis] if axis not in varying else varying


def _axis_index(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    """x + axis_index, as JAX lowers it: digits of partition-id."""
    x, axis = w.pool[-1], w.choose(manual)
    if not x.is_float:
        return varying
    names, sizes = list(w.mesh), list(w.mesh.values())
    stride = math.prod(sizes[names.index(axis) + 1 :])
    b = w.builder
    digit = b.divide(b.partition_id(), b.scalar(U32, stride))
    digit = b.convert(b.remainder(digit, b.scalar(U32, w.mesh[axis])), S32)
    number = b.broadcast_scalar(b.convert(digit, x.dtype), x.dims)
    w.keep(replace(x, hlo=b.add(x.hlo, number), bound=x.bound + w.mesh[axis]))
    return [*varying, axis] if axis not in varying else varying


# ---- the edges
class _ShardyEdges:
    """GlobalToLocalShape and LocalToGlobalShape; dimensions may be open for the free axes."""

    @staticmethod
    def enter(
        w: Writer,
        manual: Sequence[str],
        x: HloInstruction,
        split: Sequence[tuple[str, ...]],
        local_dims: tuple[int, ...],
    ) -> HloInstruction:
        shape = ArrayShape(x.array_shape.element_type, local_dims)
        call = _edge(
            w, "xla.sdy.GlobalToLocalShape", "xla.sdy.in_shardings", manual, x, split, shape
        )
        return w.builder.get_tuple_element(call, 0)

    @staticmethod
    def leave(
        w: Writer,
        manual: Sequence[str],
        x: HloInstruction,
        split: Sequence[tuple[str, ...]],
        global_dims: tuple[int, ...],
    ) -> HloInstruction:
        shape = ArrayShape(x.array_shape.element_type, global_dims)
        call = _edge(
            w, "xla.sdy.LocalToGlobalShape", "xla.sdy.out_shardings", manual, x, split, shape
        )
        return w.builder.get_tuple_element(call, 0)


def _edge(
    w: Writer,
    target: str,
    key: str,
    manual: Sequence[str],
    x: HloInstruction,
    split: Sequence[tuple[str, ...]],
    shape: ArrayShape,
) -> HloInstruction:
    free = len(manual) < len(w.mesh)
    spec = Spec(tuple(split), tuple(free and w.chance(0.7) for _ in split))
    axes = ", ".join(f'"{a}"' for a in w.mesh if a in manual)
    call = w.builder.create(
        Opcode.CUSTOM_CALL,
        (x,),
        CustomCallAttrs(target, has_side_effect=True),
        shape=TupleShape((shape,)),
    )
    call.annotations = Annotations(
        frontend_attributes=(
            (key, f"#sdy.sharding_per_value<[{shardy(w, spec, may_halve=False)}]>"),
            ("xla.sdy.manual_axes", f"#sdy<manual_axes{{{axes}}}>"),
        )
    )
    return call


class _GspmdEdges:
    """A Sharding call on each side of SPMDFullToShardShape and SPMDShardToFullShape."""

    @staticmethod
    def enter(
        w: Writer,
        manual: Sequence[str],
        x: HloInstruction,
        split: Sequence[tuple[str, ...]],
        local_dims: tuple[int, ...],
    ) -> HloInstruction:
        outside = gspmd(w, Spec(tuple(split), (False,) * len(split)))
        shape = ArrayShape(x.array_shape.element_type, local_dims)
        x = _call(w, "Sharding", manual, x, x.array_shape, outside)
        return _call(w, "SPMDFullToShardShape", manual, x, shape, _inside(w, manual, len(split)))

    @staticmethod
    def leave(
        w: Writer,
        manual: Sequence[str],
        x: HloInstruction,
        split: Sequence[tuple[str, ...]],
        global_dims: tuple[int, ...],
    ) -> HloInstruction:
        outside = gspmd(w, Spec(tuple(split), (False,) * len(split)))
        shape = ArrayShape(x.array_shape.element_type, global_dims)
        x = _call(w, "Sharding", manual, x, x.array_shape, _inside(w, manual, len(split)))
        return _call(w, "SPMDShardToFullShape", manual, x, shape, outside)


def _call(
    w: Writer,
    target: str,
    manual: Sequence[str],
    x: HloInstruction,
    shape: ArrayShape,
    sharding: HloSharding,
) -> HloInstruction:
    call = w.builder.create(Opcode.CUSTOM_CALL, (x,), CustomCallAttrs(target), shape=shape)
    call.sharding = sharding
    if len(manual) < len(w.mesh) and shape.rank:
        dims = ",".join(map(str, range(shape.rank)))
        call.annotations = Annotations(backend_config=f"unspecified_dims=[{dims}]")
    return call


def _inside(w: Writer, manual: Sequence[str], rank: int) -> HloSharding:
    names, sizes = list(w.mesh), tuple(w.mesh.values())
    inner = [a for a in names if a in manual]
    rest = [a for a in names if a not in manual]
    if not rest:
        return HloSharding.manual()
    tile = (*(1,) * rank, math.prod(w.mesh[a] for a in inner), math.prod(w.mesh[a] for a in rest))
    iota = iota_tile(tile, sizes, tuple(names.index(a) for a in (*inner, *rest)))
    return HloSharding.tiled(TileAssignment(iota), (SubgroupType.MANUAL, SubgroupType.REPLICATED))
