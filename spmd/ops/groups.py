"""Groups of devices of a collective (XLA's GetCollectiveOpGroupMode).

A device is replica * num_partitions + partition. The meaning of the ids in ``replica_groups`` depends on the kind, the
channel id and ``use_global_device_ids``:

    kind                                   no channel       channel                        channel, global ids
    all-reduce, all-gather, reduce-scatter cross_replica    cross_replica_and_partition    flattened_id
    others                                 cross_replica    cross_partition                -
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from functools import lru_cache

import numpy as np

from spmd.device import CollectiveGroupMode, IotaTile, ReplicaGroups
from spmd.device_groups import DeviceGroups, Ids
from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.source_target_pairs import Pair

_WITH_GLOBAL_IDS = (
    Opcode.ALL_REDUCE,
    Opcode.ALL_REDUCE_START,
    Opcode.ALL_GATHER,
    Opcode.ALL_GATHER_START,
    Opcode.REDUCE_SCATTER,
)


def group_mode(instruction: HloInstruction) -> CollectiveGroupMode:
    """Return the meaning of the ids in the instruction's groups (or pairs)."""
    attrs = instruction.attrs
    if isinstance(attrs, CollectivePermuteAttrs):
        has_channel, has_global_ids = attrs.channel_id is not None, False
    else:
        collective = instruction.attrs_as(CollectiveAttrs)
        has_channel, has_global_ids = (
            collective.channel_id is not None,
            collective.use_global_device_ids,
        )
    if instruction.opcode in _WITH_GLOBAL_IDS:
        if has_global_ids and not has_channel:
            raise ShapeError("use_global_device_ids needs a channel_id")
        if has_global_ids:
            return CollectiveGroupMode.FLATTENED_ID
        return (
            CollectiveGroupMode.CROSS_REPLICA_AND_PARTITION
            if has_channel
            else CollectiveGroupMode.CROSS_REPLICA
        )
    return CollectiveGroupMode.CROSS_PARTITION if has_channel else CollectiveGroupMode.CROSS_REPLICA


def group_key(collective: HloInstruction) -> Hashable:
    """Return a key that is equal for collectives of a program with the same groups of devices, or pairs."""
    attrs = collective.attrs
    if isinstance(attrs, CollectivePermuteAttrs):
        return attrs.source_target_pairs, group_mode(collective)
    return collective.attrs_as(CollectiveAttrs).replica_groups, group_mode(collective)


def id_count(mode: CollectiveGroupMode, num_partitions: int, replica_count: int) -> int:
    """Return the number of ids that replica groups must cover in `mode`."""
    if mode is CollectiveGroupMode.CROSS_PARTITION:
        return num_partitions
    if mode is CollectiveGroupMode.FLATTENED_ID:
        return num_partitions * replica_count
    return replica_count


def stated_ids(instruction: HloInstruction) -> int | None:
    """Return the number of ids that the module's header implies for the groups (or pairs) of ``instruction``.

    Returns None for a single id: a header that leaves its counts out means that too, by XLA's rules and in JAX's text.
    The valid ids are then known only when the devices are given (``device_groups``).
    """
    module = instruction.parent.module if instruction.parent is not None else None
    if module is None:
        return None
    count = id_count(group_mode(instruction), module.num_partitions, module.replica_count)
    return None if count == 1 else count


def group_size(instruction: HloInstruction) -> int | None:
    """Return the number of devices in the first group; None if it depends on the number of devices and the module does
    not state that.

    A single member also gives None (XLA's rule) if the header leaves the counts out.
    """
    groups = instruction.attrs_as(CollectiveAttrs).replica_groups
    mode = group_mode(instruction)
    module = instruction.parent.module if instruction.parent is not None else None
    partitions, replicas = (
        (module.num_partitions, module.replica_count) if module is not None else (1, 1)
    )
    size = groups.group_size(id_count(mode, partitions, replicas))
    if mode is CollectiveGroupMode.CROSS_REPLICA_AND_PARTITION:
        if partitions * replicas == 1:
            return None
        size *= partitions
    return None if size == 1 and stated_ids(instruction) is None else size


def device_groups(
    instruction: HloInstruction, num_partitions: int, replica_count: int
) -> tuple[tuple[int, ...], ...]:
    """Return the groups as lists of devices, in the order of the members (their positions in gathers).

    Raises ShapeError for ids that these counts do not have.
    """
    groups = instruction.attrs_as(CollectiveAttrs).replica_groups
    mode = group_mode(instruction)
    found = _written_out(groups, mode, num_partitions, replica_count)
    if found is None:
        count = id_count(mode, num_partitions, replica_count)
        _check_ids(instruction, groups.expand(count), count)
    assert found is not None
    return found


@lru_cache(maxsize=64)
def _written_out(
    groups: ReplicaGroups, mode: CollectiveGroupMode, num_partitions: int, replica_count: int
) -> tuple[tuple[int, ...], ...] | None:
    """Expand groups, cached for all collectives that state the same; None for invalid ids."""
    count = id_count(mode, num_partitions, replica_count)
    ids = groups.expand(count)
    if any(not 0 <= i < count for group in ids for i in group):
        return None
    return as_devices(ids, mode, num_partitions, replica_count)


def participating_groups(
    instruction: HloInstruction, num_partitions: int, replica_count: int
) -> DeviceGroups:
    """Return the non-empty groups as a value, sorted by first member. Raises ShapeError as ``device_groups`` does."""
    groups = instruction.attrs_as(CollectiveAttrs).replica_groups
    found = find_participating_groups(
        groups, group_mode(instruction), num_partitions, replica_count
    )
    if found is None:
        return DeviceGroups.of(device_groups(instruction, num_partitions, replica_count))
    return found


@lru_cache(maxsize=256)
def find_participating_groups(
    groups: ReplicaGroups, mode: CollectiveGroupMode, num_partitions: int, replica_count: int
) -> DeviceGroups | None:
    """Return the groups of devices; None for ids that these counts do not have.

    The result is cached: programs have few sets of groups, however many collectives.
    """
    count = id_count(mode, num_partitions, replica_count)
    lines = IotaTile.of((1, count)) if groups.is_all else groups.iota
    if lines is not None and len(lines.dims) == 2 and math.prod(lines.dims) == count:
        return DeviceGroups.of_lines(_lines_of_devices(lines, mode, num_partitions, replica_count))
    ids = groups.expand(count)
    if any(not 0 <= i < count for group in ids for i in group):
        return None
    return DeviceGroups.of(as_devices(ids, mode, num_partitions, replica_count))


def _lines_of_devices(
    ids: IotaTile, mode: CollectiveGroupMode, num_partitions: int, replica_count: int
) -> IotaTile:
    """Return lines of all devices from lines of all ids: the other part of a device's number is one more digit."""
    (lines, size), sizes, order = ids.dims, ids.reshape_dims, ids.transpose_perm
    last = len(sizes)
    match mode:
        case CollectiveGroupMode.FLATTENED_ID:
            return ids
        case CollectiveGroupMode.CROSS_PARTITION:
            after = tuple(d + 1 for d in order)
            return IotaTile((replica_count * lines, size), (replica_count, *sizes), (0, *after))
        case CollectiveGroupMode.CROSS_REPLICA:
            dims = (num_partitions * lines, size)
            return IotaTile(dims, (*sizes, num_partitions), (last, *order))
        case CollectiveGroupMode.CROSS_REPLICA_AND_PARTITION:
            dims = (lines, size * num_partitions)
            return IotaTile(dims, (*sizes, num_partitions), (*order, last))


def as_devices(
    ids: tuple[tuple[int, ...], ...],
    mode: CollectiveGroupMode,
    num_partitions: int,
    replica_count: int,
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of devices that groups of ``mode``'s ids represent."""
    if mode is CollectiveGroupMode.FLATTENED_ID:
        return ids
    if mode is CollectiveGroupMode.CROSS_PARTITION:
        return tuple(
            tuple(replica * num_partitions + i for i in group)
            for replica in range(replica_count)
            for group in ids
        )
    if mode is CollectiveGroupMode.CROSS_REPLICA:
        return tuple(
            tuple(i * num_partitions + partition for i in group)
            for group in ids
            for partition in range(num_partitions)
        )
    return tuple(
        tuple(i * num_partitions + p for i in group for p in range(num_partitions)) for group in ids
    )


def device_pairs(
    instruction: HloInstruction, num_partitions: int, replica_count: int
) -> tuple[Pair, ...]:
    """Return a permute's (source, target) pairs as devices. Raises ShapeError for ids that these counts do not have."""
    ends = device_ends(instruction, num_partitions, replica_count)
    return tuple(map(tuple, ends.tolist()))


def device_ends(instruction: HloInstruction, num_partitions: int, replica_count: int) -> Ids:
    """Return the same as an array [pairs, 2]."""
    pairs = instruction.attrs_as(CollectivePermuteAttrs).source_target_pairs
    mode = group_mode(instruction)
    count = id_count(mode, num_partitions, replica_count)
    if pairs.smallest < 0 or pairs.largest >= count:
        _check_ids(instruction, pairs, count)
    if mode is CollectiveGroupMode.CROSS_PARTITION:
        replicas = np.arange(replica_count, dtype=np.int64)[:, None, None] * num_partitions
        return (replicas + pairs.ends()).reshape(-1, 2)
    partitions = np.arange(num_partitions, dtype=np.int64)[:, None]
    return (pairs.ends()[:, None] * num_partitions + partitions).reshape(-1, 2)


def _check_ids(instruction: HloInstruction, members: Iterable[tuple[int, ...]], count: int) -> None:
    strange = next((i for ids in members for i in ids if not 0 <= i < count), None)
    if strange is not None:
        mode = group_mode(instruction).value
        raise ShapeError(f"{instruction!r}: {mode} ids must lie in 0..{count - 1}, found {strange}")
