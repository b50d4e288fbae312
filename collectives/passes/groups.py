"""The groups of a collective as devices, and groups of devices as attributes."""

from __future__ import annotations

from dataclasses import replace

from spmd.builder import ModuleScope
from spmd.device import ReplicaGroups
from spmd.device_groups import DeviceGroups
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import find_participating_groups, group_mode


def states_devices(module: HloModule) -> bool:
    """Return whether the header states the number of devices; one that does not has the numbers of a single device."""
    return module.states_partitions or module.num_partitions * module.replica_count > 1


def known_groups(collective: HloInstruction) -> DeviceGroups | None:
    """Return the groups of participating devices.

    Returns None if the module's header does not state the number of devices, or if it has fewer than the groups name.
    """
    assert collective.parent is not None
    module = collective.parent.module
    if module is None or not states_devices(module):
        return None
    groups = collective.attrs_as(CollectiveAttrs).replica_groups
    return find_participating_groups(
        groups, group_mode(collective), module.num_partitions, module.replica_count
    )


def named_groups(groups: DeviceGroups) -> ReplicaGroups:
    """Return groups of devices as an attribute: as an iota tile if they are one, else as lists."""
    return (
        ReplicaGroups(groups.listed) if groups.lines is None else ReplicaGroups(iota=groups.lines)
    )


def among_devices(
    collective: HloInstruction, groups: DeviceGroups, scope: ModuleScope, dimension: int
) -> CollectiveAttrs:
    """Return the attributes of ``collective`` with these groups of devices, along ``dimension``."""
    attrs = collective.attrs_as(CollectiveAttrs)
    channel = attrs.channel_id if attrs.channel_id is not None else scope.channel_id()
    return replace(
        attrs,
        replica_groups=named_groups(groups),
        channel_id=channel,
        use_global_device_ids=True,
        dimension=dimension,
    )
