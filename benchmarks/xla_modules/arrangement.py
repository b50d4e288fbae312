"""Arrangement of a test module: its replicas and partitions, and whether each device has inputs of its own.

XLA's tests often give these numbers to the function that runs the text, and not in the text. They follow from the
header, else from shardings and meshes, else from the groups and pairs of the collectives, else from how many times as
large as its operand an all-gather is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from launch.options import CompileOptions
from launch.pipeline import is_partitioned
from spmd.device import CollectiveGroupMode, ReplicaGroups
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.groups import group_mode
from spmd.shape import ArrayShape, Shape, TupleShape, leaves
from spmd.sharding import HloSharding
from spmd.text.sharding.module_meshes import meshes_of
from spmd.text.stage import device_count

_SHARDY = "xla.sdy."
_CHANGE_SIZE = (Opcode.ALL_GATHER, Opcode.ALL_GATHER_START, Opcode.REDUCE_SCATTER)


@dataclass(frozen=True)
class Arrangement:
    """``per_device``: the module is one device's program; else it is to be partitioned, and takes global arrays."""

    replicas: int
    partitions: int
    per_device: bool

    @property
    def devices(self) -> int:
        return self.replicas * self.partitions


def arrangement_of(module: HloModule) -> Arrangement:
    replicas, partitions = module.replica_count, module.num_partitions
    logical = not is_partitioned(module, CompileOptions())
    partitions = max(partitions, _sharded_over(module))
    for mode, count in _named(module):
        if mode is CollectiveGroupMode.FLATTENED_ID:
            partitions = max(partitions, -(-count // replicas))
        elif mode is CollectiveGroupMode.CROSS_PARTITION:
            partitions = max(partitions, count)
        elif partitions == 1 or mode is CollectiveGroupMode.CROSS_REPLICA:
            replicas = max(replicas, count)
    own = partitions == 1 or (replicas > 1 and not _is_sharded(module))
    return Arrangement(replicas, partitions, not logical or own)


def _sharded_over(module: HloModule) -> int:
    """Return the number of devices that meshes and shardings name, which are those of one replica."""
    if meshes_of(module):
        return device_count(module) // module.replica_count
    counts = [x.sharding.num_devices for x in module.all_instructions() if x.sharding is not None]
    return max((count for count in counts if count), default=1)


def _is_sharded(module: HloModule) -> bool:
    """Return whether there is something to partition by."""
    return any(x.sharding is not None for x in module.all_instructions()) or any(
        key.startswith(_SHARDY)
        for x in module.all_instructions()
        for key, _ in x.annotations.frontend_attributes
    )


def _named(module: HloModule) -> Iterator[tuple[CollectiveGroupMode, int]]:
    """Yield what the ids of each collective mean and how many of them there are at least, replicas first."""
    found = [
        one
        for x in module.all_instructions()
        if isinstance(x.attrs, CollectiveAttrs | CollectivePermuteAttrs)
        for one in _ids(x)
        if one[1]
    ]
    yield from sorted(found, key=lambda one: one[0] is not CollectiveGroupMode.CROSS_REPLICA)


def _ids(collective: HloInstruction) -> Iterator[tuple[CollectiveGroupMode, int]]:
    attrs, mode = collective.attrs, group_mode(collective)
    if isinstance(attrs, CollectivePermuteAttrs):
        yield mode, attrs.source_target_pairs.largest + 1
        return
    groups = collective.attrs_as(CollectiveAttrs).replica_groups
    if groups.is_all:
        yield mode, _growth(collective)
        return
    yield mode, _largest(groups) + 1
    if mode is CollectiveGroupMode.CROSS_REPLICA_AND_PARTITION:
        yield CollectiveGroupMode.CROSS_PARTITION, _growth(collective) // groups.group_size(0)


def _growth(collective: HloInstruction) -> int:
    """Return how many operands the result of a gathering, or results the operand of a scattering; 0 for others."""
    dimension = collective.attrs_as(CollectiveAttrs).dimension
    if collective.opcode not in _CHANGE_SIZE or dimension is None:
        return 0
    sizes = [_last_leaf(x).dims[dimension] for x in (collective.operand(0).shape, collective.shape)]
    return max(sizes) // max(min(sizes), 1)


def _last_leaf(shape: Shape) -> ArrayShape:
    while isinstance(shape, TupleShape):
        shape = shape.elements[-1]
    assert isinstance(shape, ArrayShape)
    return shape


def _largest(groups: ReplicaGroups) -> int:
    if (spanned := groups.spanned()) is not None:
        return spanned - 1
    return max((max(group, default=-1) for group in groups.expand(0)), default=-1)


def arranged(module: HloModule, arrangement: Arrangement) -> HloModule:
    """Return a copy of ``module`` whose header states the arrangement."""
    copy = clone_module(module)
    copy.states_partitions = arrangement.partitions > 1
    copy.replica_count, copy.num_partitions = arrangement.replicas, arrangement.partitions
    return copy


def manual_text(module: HloModule, *, loops: bool) -> str:
    """Return the text of one device's program with everything manual, so that XLA's partitioner leaves it as it is.

    Whether ``loops`` are marked as well decides which of them XLA compiles: it propagates what the state of unmarked
    ones is, and changes the state of marked ones without changing the sharding.
    """
    copy = clone_module(module)
    for instruction in copy.all_instructions():
        if instruction.opcode is Opcode.WHILE and not loops:
            continue
        parts = tuple(HloSharding.manual() for _ in leaves(instruction.shape))
        whole = isinstance(instruction.shape, TupleShape)
        instruction.sharding = HloSharding.tuple_of(parts) if whole else HloSharding.manual()
    return str(copy)
