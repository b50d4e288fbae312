"""A per-device program for more replicas of its data axis: the same shapes on each device, larger groups.

The data axis is the outermost part of the devices' numbers, across which collectives only reduce: device d of n belongs
to replica d // s, for the largest s such that the groups of each collective either lie within replicas, or contain with
each device the one s further on. Of K times as many devices, device c n + d does what device d did. Groups within
replicas are repeated; groups across replicas contain the members of all copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from collectives.passes.groups import named_groups
from spmd.builder import Builder
from spmd.device_groups import DeviceGroups, Ids
from spmd.errors import UnsupportedError
from spmd.hlo.clone import clone_module
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.groups import participating_groups
from spmd.shape import PrimitiveType
from spmd.source_target_pairs import ListedPairs

#: Collectives whose result has one shape in groups of any size.
_ANY_SIZE = (Opcode.ALL_REDUCE, Opcode.ALL_REDUCE_START, Opcode.COLLECTIVE_BROADCAST)


def with_more_replicas(module: HloModule, copies: int) -> HloModule:
    """Return the per-device program ``module`` for ``copies`` times as many devices.

    Raises UnsupportedError if the program has no data axis: if no collective joins replicas, or if one that joins them
    gathers, scatters or exchanges, so that its shapes depend on their number.
    """
    if module.replica_count != 1:
        raise UnsupportedError(
            f"{module.name} has {module.replica_count} replicas: --data-parallel needs a module with partitions only"
        )
    program = clone_module(module)
    devices = program.num_partitions
    collectives = [x for x in program.all_instructions() if isinstance(x.attrs, CollectiveAttrs)]
    groups = {x: participating_groups(x, devices, 1) for x in collectives}
    replica = _replica_size(program, groups)
    for x, of_devices in groups.items():
        attrs = x.attrs_as(CollectiveAttrs)
        if not attrs.replica_groups.is_all:
            found = _extended(of_devices, devices, replica, copies)
            x.attrs = replace(attrs, replica_groups=named_groups(found))
    for x in program.all_instructions():
        if isinstance(x.attrs, CollectivePermuteAttrs):
            x.attrs = _repeated(x.attrs, devices, copies)
        x.sharding = None
    for computation in program.computations_post_order():
        _count_within_copies(computation, devices)
    program.num_partitions = devices * copies
    return program


def _replica_size(program: HloModule, groups: dict[HloInstruction, DeviceGroups]) -> int:
    """Return the number of devices of a replica."""
    devices = program.num_partitions
    numbers = {found: found.number(devices) for found in dict.fromkeys(groups.values())}
    for size in (n for n in range(devices // 2, 0, -1) if devices % n == 0):
        joined = {found for found, number in numbers.items() if _joins(number, size)}
        if joined and all(
            found in joined or _lies_within(number, size) for found, number in numbers.items()
        ):
            _require_reductions(groups, joined)
            return size
    raise UnsupportedError(
        f"{program.name} has no data axis: no collective reduces over equal blocks of consecutive devices"
    )


def _joins(number: Ids, size: int) -> bool:
    """Return whether each device is in one group with the device ``size`` further on."""
    return bool((np.roll(number, -size) == number).all())


def _lies_within(number: Ids, size: int) -> bool:
    """Return whether each group lies in one range of ``size`` devices."""
    first = np.full(number.max() + 1, -1, np.int64)
    replica = np.arange(number.size) // size
    first[number] = replica
    return bool((first[number] == replica).all())


def _require_reductions(
    groups: dict[HloInstruction, DeviceGroups], joined: set[DeviceGroups]
) -> None:
    for x, found in groups.items():
        if found in joined and x.opcode not in _ANY_SIZE:
            raise UnsupportedError(
                f"{x.name}: this {x.opcode} spans replicas, so its shapes depend on the number of replicas"
            )


def _extended(groups: DeviceGroups, devices: int, replica: int, copies: int) -> DeviceGroups:
    members = list(_copies(groups, devices, copies))
    if _joins(groups.number(devices), replica):
        return DeviceGroups.of(
            [one for of_copy in group for one in of_copy] for group in zip(*members, strict=True)
        )
    return DeviceGroups.of(group for of_copy in members for group in of_copy)


def _copies(groups: DeviceGroups, devices: int, copies: int) -> Iterator[list[list[int]]]:
    for copy in range(copies):
        yield [[copy * devices + one for one in group] for group in groups]


def _repeated(attrs: CollectivePermuteAttrs, devices: int, copies: int) -> CollectivePermuteAttrs:
    pairs = attrs.source_target_pairs.expand()
    repeated = tuple(
        (copy * devices + source, copy * devices + target)
        for copy in range(copies)
        for source, target in pairs
    )
    return replace(attrs, source_target_pairs=ListedPairs(repeated))


def _count_within_copies(computation: HloComputation, devices: int) -> None:
    """Replace the uses of each partition-id by its remainder by ``devices``."""
    for x in list(computation.with_opcode(Opcode.PARTITION_ID)):
        users, was_root = x.users, x.is_root
        b = Builder(computation)
        within = b.remainder(x, b.scalar(PrimitiveType.U32, devices))
        for user in users:
            for i, operand in enumerate(user.operands):
                if operand is x:
                    user.replace_operand(i, within)
        if was_root:
            computation.root = within
