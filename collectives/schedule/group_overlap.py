"""Collectives of a module that may not be in flight at the same time: those with groups that share several devices.

If two devices start two such collectives in different orders, they wait for each other for ever: each device has the
resources that the other needs (progress slots, communicators). Groups that share one device, or none, cannot form such
a cycle alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import field
from typing import TypeAlias

import numpy as np

from collectives.cost.collective_bytes import collective_of
from spmd.device_groups import DeviceGroups, Ids
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.groups import device_pairs, group_key, participating_groups

#: Number that is equal for collectives over the same devices.
GroupClass: TypeAlias = int


@dataclass
class GroupOverlap:
    """Classes of a module's collectives by their groups, and which classes share more than one device.

    A permute's groups are the devices that its pairs link with one another.
    """

    module: HloModule
    _classes: dict[Hashable, GroupClass] = field(default_factory=dict)
    _members: list[HloInstruction] = field(default_factory=list)
    _labels: dict[GroupClass, Ids] = field(default_factory=dict)
    _shared: dict[tuple[GroupClass, GroupClass], bool] = field(default_factory=dict)

    def class_of(self, x: HloInstruction) -> GroupClass:
        """Return the class of a collective, of its start, or of an async-start around one."""
        one = collective_of(x)
        key = group_key(one)
        if key not in self._classes:
            self._classes[key] = len(self._members)
            self._members.append(one)
        return self._classes[key]

    def share(self, one: GroupClass, other: GroupClass) -> bool:
        """Return whether a group of ``one`` and a group of ``other`` have more than one device in common."""
        key = (min(one, other), max(one, other))
        if key not in self._shared:
            self._shared[key] = self._look(*key)
        return self._shared[key]

    def _look(self, one: GroupClass, other: GroupClass) -> bool:
        first, second = self._labels_of(one), self._labels_of(other)
        both = (first >= 0) & (second >= 0)
        codes = first[both] * (int(second.max(initial=0)) + 1) + second[both]
        return bool(codes.size and np.unique(codes, return_counts=True)[1].max() > 1)

    def _labels_of(self, kind: GroupClass) -> Ids:
        """Return for each device the number of its group; -1 if it takes no part."""
        if kind not in self._labels:
            member = self._members[kind]
            sizes = self.module.num_partitions, self.module.replica_count
            if isinstance(member.attrs, CollectivePermuteAttrs):
                groups = DeviceGroups.of(linked_devices(device_pairs(member, *sizes)))
            else:
                groups = participating_groups(member, *sizes)
            self._labels[kind] = groups.number(self._devices)
        return self._labels[kind]

    @property
    def _devices(self) -> int:
        return self.module.num_partitions * self.module.replica_count


def linked_devices(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return the sorted groups of devices that pairs link, directly or through others."""
    leader: dict[int, int] = {}

    def find(device: int) -> int:
        while leader[device] != device:
            leader[device] = leader[leader[device]]
            device = leader[device]
        return device

    for source, target in pairs:
        leader.setdefault(source, source)
        leader.setdefault(target, target)
        one, other = sorted((find(source), find(target)))
        leader[other] = one
    members: dict[int, list[int]] = {}
    for device in sorted(leader):
        members.setdefault(find(device), []).append(device)
    return tuple(map(tuple, members.values()))
