"""Facts that a text does not state: whether a module is partitioned already, and for how many devices it is."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.device import ReplicaGroups
from spmd.hlo.collective_opcodes import COLLECTIVES
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.custom_call import PARTITIONER_CALLS, custom_call_target
from spmd.ops.send_recv import source_target_pairs
from spmd.text.sharding.module_meshes import meshes_of

#: Custom calls that occur only in modules that are not partitioned yet.
LOGICAL_CALLS = PARTITIONER_CALLS | {
    "ShardBarrierFrom",
    "ShardBarrierTo",
    "xla.sdy.PropagationBarrier",
    "xla.sdy.ShardingGroup",
}
_SHARDY_PREFIX = "xla.sdy."
#: A sharding rule describes an operation; partitioned modules keep it.
_SHARDING_RULE = "xla.sdy.sharding_rule"


def guess_stage(module: HloModule) -> Stage:
    """Return the module's stage, raised to PARTITIONED if it has collectives and no shardings to partition by.

    Shardings on entry parameters and on the entry's root only describe how a per-device program is called. Programs
    that are still to be partitioned may have collectives between replicas.
    """
    if module.stage is not Stage.LOGICAL:
        return module.stage
    has_collectives = False
    for instruction in module.all_instructions():
        has_collectives = has_collectives or _joins_partitions(module, instruction)
        if _asks_for_partitioning(module, instruction):
            return Stage.LOGICAL
    return Stage.PARTITIONED if has_collectives else Stage.LOGICAL


def _joins_partitions(module: HloModule, instruction: HloInstruction) -> bool:
    """Return whether a collective's groups are not replicas. With one replica, none can be. True for send and recv,
    too.
    """
    if instruction.opcode in (Opcode.SEND, Opcode.RECV):
        return source_target_pairs(instruction) is not None
    if instruction.opcode not in COLLECTIVES:
        return False
    return module.replica_count == 1 or getattr(instruction.attrs, "channel_id", None) is not None


def _asks_for_partitioning(module: HloModule, instruction: HloInstruction) -> bool:
    if custom_call_target(instruction) in LOGICAL_CALLS:
        return True
    is_external = instruction.parent is module.entry and (
        instruction.opcode is Opcode.PARAMETER or instruction.is_root
    )
    if is_external:
        return False
    keys = (key for key, _ in instruction.annotations.frontend_attributes)
    return instruction.sharding is not None or any(
        key.startswith(_SHARDY_PREFIX) and key != _SHARDING_RULE for key in keys
    )


def device_count(module: HloModule) -> int:
    """Return the number of devices that the module is for: as stated, else from its meshes, its shardings or its
    replica groups.

    Meshes and shardings count the devices of one replica.
    """
    stated = module.num_partitions * module.replica_count
    if module.states_partitions:
        return stated
    if partitions := _from_meshes(module) or _from_shardings(module):
        return max(partitions, module.num_partitions) * module.replica_count
    return max(_from_groups(module), stated)


def _from_meshes(module: HloModule) -> int:
    meshes = meshes_of(module).values()
    return max((mesh.num_devices for mesh in meshes if not mesh.is_maximal), default=0)


def _from_shardings(module: HloModule) -> int:
    counts = [
        count
        for instruction in module.all_instructions()
        if instruction.sharding is not None and (count := instruction.sharding.num_devices)
    ]
    return max(counts, default=0)


def _from_groups(module: HloModule) -> int:
    return (
        max((device for x in module.all_instructions() for device in _devices(x)), default=-1) + 1
    )


def _devices(instruction: HloInstruction) -> Iterator[int]:
    """Return the largest ids that an instruction names."""
    attrs = instruction.attrs
    if isinstance(attrs, CollectivePermuteAttrs):
        yield attrs.source_target_pairs.largest
    elif isinstance(attrs, CollectiveAttrs):
        yield _largest(attrs.replica_groups)
    elif instruction.opcode in (Opcode.SEND, Opcode.RECV):
        yield from map(max, source_target_pairs(instruction) or ())


def _largest(groups: ReplicaGroups) -> int:
    if groups.is_all:
        return -1
    if (spanned := groups.spanned()) is not None:
        return spanned - 1
    return max((max(group, default=-1) for group in groups.expand(0)), default=-1)
