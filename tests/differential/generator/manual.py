"""Manual regions (shard_map) in Shardy's and in GSPMD's spelling, with collectives of their own inside.

A region takes a value split along some mesh axes, works on what one device holds, and puts the parts together again. A
value that differs along a manual axis must be split along it on the way out: all that are made here are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import Annotations, HloInstruction, Opcode
from spmd.literal import Literal
from spmd.ops.attrs import CallAttrs, CollectiveAttrs, CustomCallAttrs
from spmd.shape import ArrayShape, TupleShape
from spmd.source_target_pairs import ListedPairs
from tests.differential.generator.annotations import Spec, gspmd, shardy
from tests.differential.generator.combining import may_sum, summed
from tests.differential.generator.control import nested_writer, write_operations
from tests.differential.generator.steering import steer
from tests.differential.generator.table import operation
from tests.differential.generator.writer import (
    F32,
    MAX_ELEMENTS,
    PRED,
    S32,
    SIZES,
    U32,
    Value,
    Writer,
)

COLLECTIVES = (
    Opcode.ALL_REDUCE,
    Opcode.ALL_GATHER,
    Opcode.COLLECTIVE_PERMUTE,
    Opcode.ALL_TO_ALL,
    Opcode.REDUCE_SCATTER,
    Opcode.COLLECTIVE_BROADCAST,
)
SHARDY_EDGES = (
    "custom-call xla.sdy.GlobalToLocalShape",
    "custom-call xla.sdy.LocalToGlobalShape",
)
GSPMD_EDGES = ("custom-call SPMDFullToShardShape", "custom-call SPMDShardToFullShape")
#: Rows that are split at all only where a region leaves axes free.
FREE_AXES_WANTED = (*(c.value for c in COLLECTIVES), *SHARDY_EDGES, *GSPMD_EDGES)

#: Mesh axes per dimension, major to minor.
Split = list[tuple[str, ...]]


@dataclass(frozen=True)
class Crossing:
    """A value at an edge: the manual axes of each of its dimensions, and free ones behind them on the global side."""

    hlo: HloInstruction
    manual: Split
    free: Split
    dims_after: tuple[int, ...]


@operation(1.5, *COLLECTIVES, *SHARDY_EDGES, *GSPMD_EDGES, nested=False, steers=True)
def manual_region(w: Writer) -> Value | None:
    """A region over some axes: one or two values in, one out."""
    manual = w.some(list(w.mesh), 1)
    if w.aims_at(*FREE_AXES_WANTED) and len(manual) == len(w.mesh) > 1:
        manual = [w.choose(manual)]
    x = w.pick(lambda v: v.rank > 0 and 0 not in v.dims)
    split = _manual_split(w, x.dims, manual) if x is not None else None
    if x is None or split is None:
        if not w.aims_at(*FREE_AXES_WANTED):
            return None
        count = math.prod(w.mesh[a] for a in manual)
        x = w.of(F32, (w.choose(SIZES), count * w.integer(1, 2)))
        split = [(), tuple(manual)]
    taken = [(x, split)]
    other = w.pick(lambda v: v.rank > 0 and 0 not in v.dims) if w.chance(0.4) else None
    if other is not None:
        taken.append((other, _manual_split(w, other.dims, manual) or [()] * other.rank))
    if w.chance(0.5):
        taken[0] = (w.annotate(w, x), split)
    inner, body = nested_writer(w, "manual_computation_body")
    inner.may_nest = True
    inner.free_axes = [a for a in w.mesh if a not in manual]
    if not inner.free_axes:
        inner.annotate = lambda _, value: value
    entering = [_entering(w, inner, value, axes) for value, axes in taken]
    for number, ((value, _), crossing) in enumerate(zip(taken, entering, strict=True)):
        local = inner.builder.parameter(number, ArrayShape(value.dtype, crossing.dims_after))
        inner.pool.insert(0, replace(value, hlo=local))
    varying = [a for a in w.mesh if any(a in axes for _, s in taken for axes in s)]
    varying = _write_body(inner, manual, varying)
    result = inner.pool[-1]
    # The parts must find a place: one dimension takes all axes along which they differ.
    if result.rank == 0 and varying:
        result = inner.keep(replace(result, hlo=inner.builder.reshape(result.hlo, (1,))))
    body.root = result.hlo
    out: Split = [()] * result.rank
    for axis in inner.shuffled(varying):
        d = inner.integer(0, result.rank - 1)
        out[d] = (*out[d], axis)
    spread = math.prod(w.mesh[a] for a in varying)
    if math.prod(result.dims) * spread > 2 * MAX_ELEMENTS:
        return None
    edges = _ShardyEdges if w.style.shardy else _GspmdEdges
    entered = edges.enter(w, manual, entering)
    call = w.builder.create(Opcode.CALL, entered, CallAttrs(), calls=(body,))
    call.annotations = Annotations(frontend_attributes=(("inlineable", "false"),))
    global_dims = tuple(
        n * math.prod(w.mesh[a] for a in axes) for n, axes in zip(result.dims, out, strict=True)
    )
    free = _free_split(inner, result.dims, out)
    hlo = edges.leave(w, manual, Crossing(call, out, free, global_dims))
    return w.keep(replace(result, hlo=hlo))


def _entering(w: Writer, inner: Writer, value: Value, split: Split) -> Crossing:
    local = tuple(
        n // math.prod(w.mesh[a] for a in axes) for n, axes in zip(value.dims, split, strict=True)
    )
    return Crossing(value.hlo, split, _free_split(inner, local, split), local)


def _free_split(inner: Writer, local: Sequence[int], cut: Split) -> Split:
    """Free axes on the local dimensions: evenly, as an edge demands, where it cuts the dimension too."""
    free: Split = [()] * len(local)
    for axis in inner.free_axes:
        fits = [
            d
            for d, n in enumerate(local)
            if not free[d] and n and (n % inner.mesh[axis] == 0 or not cut[d])
        ]
        if fits and inner.chance(0.4):
            free[inner.choose(fits)] = (axis,)
    return free


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
            write = w.aimed(list(_WRITERS), lambda f: _WRITERS[f])
            before = len(w.builder.computation)
            after = write(w, manual, varying)
            steer(w, w.builder.computation.instructions[before:])
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
    ids = np.array(w.order or range(math.prod(sizes))).reshape(sizes).transpose([*rest, *chosen])
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
    pairs = ListedPairs(
        tuple(
            (group[i], group[(i + 1) % len(group)])
            for group in _groups(w, (axis,)).groups
            for i in range(len(group))
        )
    )
    w.keep(replace(x, hlo=w.builder.collective_permute(x.hlo, pairs)))
    return varying


def _cut_by(w: Writer, x: Value, axis: str, opcode: Opcode) -> Value:
    """``x``, or where the program aims at ``opcode`` copies of it, so that an axis divides some dimension."""
    count = w.mesh[axis] * w.integer(1, 3)
    if not w.aims_at(opcode.value) or math.prod(x.dims) * count > MAX_ELEMENTS or x.rank > 2:
        return x
    at = w.integer(0, x.rank)
    dims = (*x.dims[:at], count, *x.dims[at:])
    places = [d for d in range(x.rank + 1) if d != at]
    return replace(x, hlo=w.builder.broadcast(x.hlo, places, dims))


def _all_to_all(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    axis = w.choose(manual)
    x = _cut_by(w, w.pool[-1], axis, Opcode.ALL_TO_ALL)
    fits = [d for d, n in enumerate(x.dims) if n % w.mesh[axis] == 0]
    if fits:
        hlo = w.builder.all_to_all(x.hlo, _groups(w, (axis,)), w.choose(fits))
        w.keep(replace(x, hlo=hlo))
        return [*varying, axis] if axis not in varying else varying
    return varying


def _reduce_scatter(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    axis = w.choose(manual)
    x = _cut_by(w, w.pool[-1], axis, Opcode.REDUCE_SCATTER)
    fits = [d for d, n in enumerate(x.dims) if n % w.mesh[axis] == 0]
    if not fits or x.dtype is PRED or not may_sum(x, w.mesh[axis]):
        return varying
    hlo = w.builder.reduce_scatter(x.hlo, _groups(w, (axis,)), w.choose(fits), ReductionKind.SUM)
    if x.is_float:
        summed(w, Value(hlo, 0.0), [x], x.bound * w.mesh[axis])
    else:
        w.keep(Value(hlo, math.inf))
    return [*varying, axis] if axis not in varying else varying


def _broadcast(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    """Everyone along an axis takes the value of the first."""
    x, axis = w.pool[-1], w.choose(manual)
    attrs = CollectiveAttrs(_groups(w, (axis,)), w.builder.scope.channel_id())
    hlo = w.builder.create(Opcode.COLLECTIVE_BROADCAST, (x.hlo,), attrs)
    w.keep(replace(x, hlo=hlo))
    return [a for a in varying if a != axis]


def _axis_index(w: Writer, manual: Sequence[str], varying: list[str]) -> list[str]:
    """x + axis_index, as JAX lowers it: digits of partition-id, or of the place in the mesh that it has."""
    x, axis = w.pool[-1], w.choose(manual)
    if not x.is_float:
        return varying
    names, sizes = list(w.mesh), list(w.mesh.values())
    stride = math.prod(sizes[names.index(axis) + 1 :])
    b = w.builder
    digit = b.divide(_place_in_mesh(w), b.scalar(U32, stride))
    digit = b.convert(b.remainder(digit, b.scalar(U32, w.mesh[axis])), S32)
    number = b.broadcast_scalar(b.convert(digit, x.dtype), x.dims)
    w.keep(replace(x, hlo=b.add(x.hlo, number), bound=x.bound + w.mesh[axis]))
    return [*varying, axis] if axis not in varying else varying


def _place_in_mesh(w: Writer) -> HloInstruction:
    b = w.builder
    if w.order is None:
        return b.partition_id()
    places = np.argsort(w.order).astype(np.uint32)
    table = b.constant(Literal.of(ArrayShape(U32, places.shape), places))
    return b.reshape(b.dynamic_slice(table, [b.partition_id()], (1,)), ())


#: Operations of a region's body across devices, and the row of the table that each one writes.
_WRITERS = {
    _all_reduce: Opcode.ALL_REDUCE.value,
    _all_gather: Opcode.ALL_GATHER.value,
    _rotate: Opcode.COLLECTIVE_PERMUTE.value,
    _all_to_all: Opcode.ALL_TO_ALL.value,
    _reduce_scatter: Opcode.REDUCE_SCATTER.value,
    _broadcast: Opcode.COLLECTIVE_BROADCAST.value,
    _axis_index: Opcode.PARTITION_ID.value,
}


# ---- the edges
class _ShardyEdges:
    """GlobalToLocalShape and LocalToGlobalShape, over all values at once; dimensions may be open for the free axes."""

    @staticmethod
    def enter(w: Writer, manual: Sequence[str], values: Sequence[Crossing]) -> list[HloInstruction]:
        call = _edge(w, "xla.sdy.GlobalToLocalShape", "xla.sdy.in_shardings", manual, values)
        return [w.builder.get_tuple_element(call, i) for i in range(len(values))]

    @staticmethod
    def leave(w: Writer, manual: Sequence[str], value: Crossing) -> HloInstruction:
        call = _edge(w, "xla.sdy.LocalToGlobalShape", "xla.sdy.out_shardings", manual, [value])
        return w.builder.get_tuple_element(call, 0)


def _edge(
    w: Writer, target: str, key: str, manual: Sequence[str], values: Sequence[Crossing]
) -> HloInstruction:
    free = len(manual) < len(w.mesh)
    specs = [
        Spec(tuple(_joined(v)), tuple(free and w.chance(0.7) for _ in v.manual)) for v in values
    ]
    axes = ", ".join(f'"{a}"' for a in w.mesh if a in manual)
    shapes = [ArrayShape(v.hlo.array_shape.element_type, v.dims_after) for v in values]
    call = w.builder.create(
        Opcode.CUSTOM_CALL,
        [v.hlo for v in values],
        CustomCallAttrs(target, has_side_effect=True),
        shape=TupleShape(tuple(shapes)),
    )
    texts = ", ".join(shardy(w, spec, may_halve=False) for spec in specs)
    call.annotations = Annotations(
        frontend_attributes=(
            (key, f"#sdy.sharding_per_value<[{texts}]>"),
            ("xla.sdy.manual_axes", f"#sdy<manual_axes{{{axes}}}>"),
        )
    )
    return call


def _joined(value: Crossing) -> Split:
    return [m + f for m, f in zip(value.manual, value.free, strict=True)]


class _GspmdEdges:
    """A Sharding call on each side of SPMDFullToShardShape and SPMDShardToFullShape, value by value."""

    @staticmethod
    def enter(w: Writer, manual: Sequence[str], values: Sequence[Crossing]) -> list[HloInstruction]:
        found = []
        for value in values:
            x = _call(w, "Sharding", manual, value.hlo, value.hlo.dims, _joined(value))
            found.append(
                _call(
                    _inside(w, manual),
                    "SPMDFullToShardShape",
                    manual,
                    x,
                    value.dims_after,
                    value.free,
                )
            )
        return found

    @staticmethod
    def leave(w: Writer, manual: Sequence[str], value: Crossing) -> HloInstruction:
        inside = _inside(w, manual)
        x = _call(inside, "Sharding", manual, value.hlo, value.hlo.dims, value.free)
        return _call(w, "SPMDShardToFullShape", manual, x, value.dims_after, _joined(value))


def _inside(w: Writer, manual: Sequence[str]) -> Writer:
    return replace(w, free_axes=[a for a in w.mesh if a not in manual])


def _call(
    w: Writer,
    target: str,
    manual: Sequence[str],
    x: HloInstruction,
    dims: tuple[int, ...],
    split: Split,
) -> HloInstruction:
    """``w`` stands on the side that the call's sharding is about."""
    shape = ArrayShape(x.array_shape.element_type, dims)
    call = w.builder.create(Opcode.CUSTOM_CALL, (x,), CustomCallAttrs(target), shape=shape)
    call.sharding = gspmd(w, Spec(tuple(split), (False,) * len(split)))
    if len(manual) < len(w.mesh) and shape.rank:
        open_dims = ",".join(map(str, range(shape.rank)))
        call.annotations = Annotations(backend_config=f"unspecified_dims=[{open_dims}]")
    return call
