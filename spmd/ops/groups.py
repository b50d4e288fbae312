"""Which devices take part in a collective together (XLA's GetCollectiveOpGroupMode).

A device is replica * num_partitions + partition. What the ids in ``replica_groups`` mean depends on the kind, the
channel id and ``use_global_device_ids``:

    kind                                   no channel       channel                        channel, global ids
    all-reduce, all-gather, reduce-scatter cross_replica    cross_replica_and_partition    flattened_id
    others                                 cross_replica    cross_partition                -
"""

from __future__ import annotations

from spmd.device import CollectiveGroupMode
from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs

_WITH_GLOBAL_IDS = (
    Opcode.ALL_REDUCE,
    Opcode.ALL_REDUCE_START,
    Opcode.ALL_GATHER,
    Opcode.ALL_GATHER_START,
    Opcode.REDUCE_SCATTER,
)


def group_mode(instruction: HloInstruction) -> CollectiveGroupMode:
    """What the ids of the instruction's groups (or pairs) mean."""
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


def id_count(mode: CollectiveGroupMode, num_partitions: int, replica_count: int) -> int:
    """How many ids there are to group."""
    if mode is CollectiveGroupMode.CROSS_PARTITION:
        return num_partitions
    if mode is CollectiveGroupMode.FLATTENED_ID:
        return num_partitions * replica_count
    return replica_count


def group_size(instruction: HloInstruction) -> int | None:
    """Members of the first group, in devices; None where only the number of devices tells and the module does not."""
    groups = instruction.attrs_as(CollectiveAttrs).replica_groups
    mode = group_mode(instruction)
    module = instruction.parent.module if instruction.parent is not None else None
    whole = mode is CollectiveGroupMode.CROSS_REPLICA_AND_PARTITION
    if module is None or not states_devices(module):
        return None if whole or groups.is_all else groups.group_size(0)
    size = groups.group_size(id_count(mode, module.num_partitions, module.replica_count))
    return size * module.num_partitions if whole else size


def states_devices(module: HloModule) -> bool:
    """The text JAX prints leaves the number of partitions out."""
    if module.stage >= Stage.PARTITIONED or module.states_partitions:
        return True
    return module.num_partitions * module.replica_count != 1


def device_groups(
    instruction: HloInstruction, num_partitions: int, replica_count: int
) -> tuple[tuple[int, ...], ...]:
    """The groups as lists of devices, in the order in which members stand (position = place in gathers)."""
    groups = instruction.attrs_as(CollectiveAttrs).replica_groups
    mode = group_mode(instruction)
    ids = groups.expand(id_count(mode, num_partitions, replica_count))
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
) -> tuple[tuple[int, int], ...]:
    """A permute's (source, target) pairs as devices."""
    pairs = instruction.attrs_as(CollectivePermuteAttrs).source_target_pairs
    if group_mode(instruction) is CollectiveGroupMode.CROSS_PARTITION:
        return tuple(
            (r * num_partitions + s, r * num_partitions + t)
            for r in range(replica_count)
            for s, t in pairs
        )
    return tuple(
        (s * num_partitions + p, t * num_partitions + p)
        for s, t in pairs
        for p in range(num_partitions)
    )
