"""The groups of a collective as devices, and groups of devices as attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from spmd.builder import ModuleScope
from spmd.device import CollectiveGroupMode, IotaTile, ReplicaGroups
from spmd.hlo.instruction import HloInstruction
from spmd.iota import recognise_iota
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import as_devices, group_mode, id_count

Groups: TypeAlias = tuple[tuple[int, ...], ...]


def known_groups(collective: HloInstruction) -> Groups | None:
    """The devices that meet, in the order in which members stand, groups by their first member.

    None where the module's header does not say how many devices there are, or has fewer than the groups name.
    """
    assert collective.parent is not None
    module = collective.parent.module
    if module is None or module.num_partitions * module.replica_count == 1:
        return None
    groups = collective.attrs_as(CollectiveAttrs).replica_groups
    return _known(groups, group_mode(collective), module.num_partitions, module.replica_count)


@lru_cache(maxsize=256)
def _known(
    groups: ReplicaGroups, mode: CollectiveGroupMode, partitions: int, replicas: int
) -> Groups | None:
    """Programs of thousands of devices have few sets of groups."""
    count = id_count(mode, partitions, replicas)
    ids = groups.expand(count)
    if any(not 0 <= i < count for group in ids for i in group):
        return None
    devices = as_devices(ids, mode, partitions, replicas)
    return tuple(sorted(group for group in devices if group))


def common_size(groups: Groups) -> int | None:
    """Members of every group; None where groups differ."""
    sizes = {len(group) for group in groups}
    return sizes.pop() if len(sizes) == 1 else None


def meets_alone(groups: Groups) -> bool:
    """Nobody meets anybody else."""
    return common_size(groups) == 1


def covers(groups: Groups, devices: int) -> bool:
    """Every one of ``devices`` devices stands in exactly one group."""
    return sorted(member for group in groups for member in group) == list(range(devices))


def named_groups(groups: Groups) -> ReplicaGroups:
    """Groups of devices as attributes write them: as a transposed count where they are one, else as lists."""
    size = common_size(groups)
    found = recognise_iota([member for group in groups for member in group]) if size else None
    if size is None or found is None:
        return ReplicaGroups(groups)
    return ReplicaGroups(iota=IotaTile((len(groups), size), *found))


def among_devices(
    collective: HloInstruction, groups: Groups, scope: ModuleScope, dimension: int | None = None
) -> CollectiveAttrs:
    """What a reduction or gather of these groups of devices says; the rest is as ``collective`` says it."""
    attrs = collective.attrs_as(CollectiveAttrs)
    channel = attrs.channel_id if attrs.channel_id is not None else scope.channel_id()
    return replace(
        attrs,
        replica_groups=named_groups(groups),
        channel_id=channel,
        use_global_device_ids=True,
        dimension=dimension,
    )


def place_in_group(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """Of every device, its position among the members of its group."""
    return {device: place for group in groups for place, device in enumerate(group)}
