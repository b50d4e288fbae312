"""Programs of several devices: how many there are, who meets whom, and the forms in which groups are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spmd.device import CollectiveGroupMode, IotaTile, MeshGroups, ReductionKind, ReplicaGroups
from spmd.hlo import HloInstruction, Opcode
from spmd.literal import Literal
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import id_count
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program, Rng

Groups = tuple[tuple[int, ...], ...]

_FLATTENED = CollectiveGroupMode.FLATTENED_ID
_REPLICAS = CollectiveGroupMode.CROSS_REPLICA
_PARTITIONS = CollectiveGroupMode.CROSS_PARTITION
_ALL_PARTITIONS = CollectiveGroupMode.CROSS_REPLICA_AND_PARTITION

#: (partitions, replicas); most programs have no replicas.
_COUNTS = ((2, 1), (3, 1), (4, 1), (4, 1), (6, 1), (8, 1), (1, 4), (2, 2), (4, 2), (2, 3))

#: Reductions of each kind of element type whose results do not depend on the order.
_ORDERED = (ReductionKind.SUM, ReductionKind.SUM, ReductionKind.MAX, ReductionKind.MIN)
_WHOLE = (ReductionKind.AND, ReductionKind.OR, ReductionKind.XOR, ReductionKind.PRODUCT)


def several_devices(rng: Rng) -> Program:
    """An empty program of two to eight devices."""
    choice = int(rng.integers(len(_COUNTS)))
    return Program(rng, *_COUNTS[choice])


def device_total(p: Program) -> int:
    return p.result.num_partitions * p.result.replica_count


def reduction(p: Program, element_type: PrimitiveType) -> ReductionKind:
    """One that has a meaning for the type."""
    if element_type is PrimitiveType.PRED:
        return p.choose((ReductionKind.AND, ReductionKind.OR))
    if element_type.is_complex:
        return ReductionKind.SUM
    return p.choose((*_ORDERED, *_WHOLE) if element_type.is_integer else _ORDERED)


# ---- who meets whom
def equal_groups(p: Program, count: int, sizes: Sequence[int] = ()) -> ReplicaGroups:
    """``count`` ids in groups of one size (one of ``sizes``, if any fits), along axes or at random, in any form."""
    fitting = [n for n in sizes or range(1, count + 1) if count % n == 0]
    size = p.choose(fitting or [count])
    if size == count and p.chance(0.3):
        return ReplicaGroups()
    if p.chance(0.2):
        ids = p.shuffled(range(count))
        return ReplicaGroups(tuple(tuple(ids[i : i + size]) for i in range(0, count, size)))
    before = p.choose([n for n in range(1, count + 1) if (count // size) % n == 0])
    return along_axis(p, (before, size, count // size // before))


def along_axis(p: Program, axes: tuple[int, int, int]) -> ReplicaGroups:
    """Ids counted as ``axes`` say, in groups along the middle one, in any of the three forms."""
    before, size, behind = axes
    groups = ReplicaGroups(iota=IotaTile((before * behind, size), axes, (0, 2, 1)))
    form = p.choose(("list", "iota", "mesh"))
    if form == "list":
        return ReplicaGroups(groups.expand(math.prod(axes)))
    if form == "mesh":
        named = tuple(zip(("x", "y", "z"), axes, strict=True))
        written = ",".join(f"'{name}'={size}" for name, size in named)
        mesh = MeshGroups(named, (("y", None),), None, f"mesh[{written}] {{'y'}}")
        return ReplicaGroups(mesh=mesh)
    return groups


def rewritten(p: Program, groups: ReplicaGroups, count: int) -> ReplicaGroups:
    """The same groups, written as lists as often as not."""
    return ReplicaGroups(groups.expand(count)) if p.chance() else groups


def reducing_mode(p: Program) -> CollectiveGroupMode:
    """Return what ids of an all-reduce, an all-gather or a reduce-scatter mean; mostly devices."""
    replicas = (_REPLICAS, _ALL_PARTITIONS) if p.result.replica_count > 1 else (_ALL_PARTITIONS,)
    return p.choose((_FLATTENED, _FLATTENED, _FLATTENED, *replicas))


def exchanging_mode(p: Program) -> CollectiveGroupMode:
    """Return what ids of other collectives mean; mostly partitions."""
    return p.choose((_PARTITIONS, _PARTITIONS, _PARTITIONS, _REPLICAS))


def ids_of(p: Program, mode: CollectiveGroupMode) -> int:
    return id_count(mode, p.result.num_partitions, p.result.replica_count)


def meeting(
    p: Program, mode: CollectiveGroupMode, groups: ReplicaGroups, dimension: int | None = None
) -> CollectiveAttrs:
    """Attributes of a collective whose ids mean ``mode``, with a channel of its own where that needs one."""
    channel = None if mode is _REPLICAS else p.b.scope.channel_id()
    return CollectiveAttrs(groups, channel, mode is _FLATTENED, dimension)


# ---- writing them
def all_reduce(
    p: Program, operands: Sequence[HloInstruction], attrs: CollectiveAttrs, kind: ReductionKind
) -> HloInstruction:
    reducer = p.b.scope.reducer(kind, operands[0].array_shape.element_type)
    return p.b.create(Opcode.ALL_REDUCE, operands, attrs, calls=(reducer,))


def reduce_scatter(
    p: Program, operands: Sequence[HloInstruction], attrs: CollectiveAttrs, kind: ReductionKind
) -> HloInstruction:
    reducer = p.b.scope.reducer(kind, operands[0].array_shape.element_type)
    return p.b.create(Opcode.REDUCE_SCATTER, operands, attrs, calls=(reducer,))


def differing_scalar(p: Program) -> HloInstruction:
    """An s32 that is another one on every device."""
    b = p.b
    replica = b.multiply(b.replica_id(), b.scalar(PrimitiveType.U32, p.result.num_partitions))
    return b.convert(b.add(replica, b.partition_id()), PrimitiveType.S32)


def table_by_device(p: Program, values: Sequence[int]) -> HloInstruction:
    """The s32 that stands at the device's place in ``values``."""
    table = p.b.constant(_vector(values))
    taken = p.b.dynamic_slice(table, [differing_scalar(p)], (1,))
    return p.b.reshape(taken, ())


def _vector(values: Sequence[int]) -> Literal:
    return Literal.of(ArrayShape(PrimitiveType.S32, (len(values),)), np.asarray(values, np.int32))
