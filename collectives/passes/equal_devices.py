"""Classes of devices that hold equal values of one instruction."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from spmd.device_groups import DeviceGroups, Ids
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding, ShardingKind, SubgroupType


class EqualDevices:
    """Classes of devices with equal values. ``first[d]``: the lowest device whose value is known to equal device d's. A
    DeviceSpace creates each only once.
    """

    __slots__ = ("first",)

    def __init__(self, first: Ids) -> None:
        self.first = first


class DeviceSpace:
    """Factory of the classes of ``devices`` devices, from ``everywhere`` equal to ``nowhere``. Programs have few
    distinct classes, so results of operations on them are cached.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._made: dict[bytes, EqualDevices] = {}
        self._both: dict[tuple[EqualDevices, EqualDevices], EqualDevices] = {}
        self._within: dict[tuple[EqualDevices, DeviceGroups], bool] = {}
        self._of_parameter: dict[Hashable, EqualDevices] = {}
        self.everywhere = self.of(np.zeros(devices, np.int64))
        self.nowhere = self.of(np.arange(devices, dtype=np.int64))

    def of(self, values: Ids) -> EqualDevices:
        """Return the classes of devices that have equal entries in ``values``, which has one for each device."""
        _, lowest, number = np.unique(values, return_index=True, return_inverse=True)
        first = lowest[number]
        return self._made.setdefault(first.tobytes(), EqualDevices(first))

    def of_each(self, values: Ids, others: Ids) -> EqualDevices:
        """Return the classes of devices that have equal entries in both arrays."""
        return self.of(_numbers(values) * self.devices + _numbers(others))

    def both(self, x: EqualDevices, y: EqualDevices) -> EqualDevices:
        """Return the classes of a value that is computed from ``x`` and ``y``."""
        if x is y or y is self.everywhere:
            return x
        if x is self.everywhere:
            return y
        if (x, y) not in self._both:
            self._both[x, y] = self.of_each(x.first, y.first)
        return self._both[x, y]

    def is_equal_within(self, x: EqualDevices, groups: DeviceGroups) -> bool:
        """Return whether all members of each group have the same value."""
        if (x, groups) not in self._within:
            classes = x.first[groups.devices]
            of_group = np.zeros(len(groups), np.int64)
            of_group[groups.numbers] = classes
            self._within[x, groups] = bool((of_group[groups.numbers] == classes).all())
        return self._within[x, groups]

    def group_classes(self, x: EqualDevices, groups: DeviceGroups) -> Ids:
        """Return a number for each group, equal for groups whose members have equal values in equal order."""
        if groups.size is not None:
            return _numbers(x.first[groups.members])
        met: dict[tuple[int, ...], int] = {}
        values = (tuple(x.first[[*group]].tolist()) for group in groups)
        return np.array([met.setdefault(each, len(met)) for each in values], np.int64)

    def of_parameter(
        self, sharding: HloSharding | None, shape: ArrayShape, partitions: int
    ) -> EqualDevices:
        """Return the classes of a parameter that is sharded by ``sharding``; every replica may get another array."""
        key = sharding, shape.rank, partitions
        if key not in self._of_parameter:
            tile = _tile_of_partition(sharding, shape.rank, partitions)
            replica, partition = np.divmod(np.arange(self.devices, dtype=np.int64), partitions)
            self._of_parameter[key] = self.of_each(replica, tile[partition])
        return self._of_parameter[key]


def _numbers(values: Ids) -> Ids:
    """Return numbers from 0 that are equal for equal entries (rows, of a table)."""
    return np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)


def _tile_of_partition(sharding: HloSharding | None, rank: int, partitions: int) -> Ids:
    """Return for each partition a number that is equal for partitions with the same tile."""
    every = np.arange(partitions, dtype=np.int64)
    if sharding is not None and sharding.kind is ShardingKind.REPLICATED:
        return np.zeros_like(every)
    tiles = sharding.tiles if sharding is not None else None
    if sharding is None or tiles is None or tiles.num_devices != partitions:
        return every
    if any(kind is not SubgroupType.REPLICATED for kind in sharding.subgroup_types):
        return every
    ids = tiles.device_ids()
    members = ids.reshape(np.prod(ids.shape[:rank], dtype=int), -1)
    tile = np.empty_like(every)
    tile[members] = np.arange(len(members))[:, None]
    return tile
