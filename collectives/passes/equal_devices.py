"""Which devices hold equal values of one instruction."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from spmd.shape import ArrayShape
from spmd.sharding import HloSharding, ShardingKind, SubgroupType


class EqualDevices:
    """``first[d]``: the lowest device whose value is known to be device d's. A DeviceSpace makes each but once."""

    __slots__ = ("first",)

    def __init__(self, first: tuple[int, ...]) -> None:
        self.first = first


class DeviceSpace:
    """All that may be known of values on ``devices`` devices, from ``everywhere`` equal to ``nowhere``.

    Programs have few of them, so that what was worked out once is looked up.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._made: dict[tuple[int, ...], EqualDevices] = {}
        self._both: dict[tuple[EqualDevices, EqualDevices], EqualDevices] = {}
        self.everywhere = self.of([0] * devices)
        self.nowhere = self.of(range(devices))

    def of(self, values: Sequence[Hashable]) -> EqualDevices:
        """Of values that are equal where ``values`` (one for each device) are."""
        seen: dict[Hashable, int] = {}
        first = tuple(seen.setdefault(value, device) for device, value in enumerate(values))
        return self._made.setdefault(first, EqualDevices(first))

    def both(self, x: EqualDevices, y: EqualDevices) -> EqualDevices:
        """Of what is made of two values."""
        if x is y or y is self.everywhere:
            return x
        if x is self.everywhere:
            return y
        if (x, y) not in self._both:
            self._both[x, y] = self.of(list(zip(x.first, y.first, strict=True)))
        return self._both[x, y]

    def of_parameter(
        self, sharding: HloSharding | None, shape: ArrayShape, partitions: int
    ) -> EqualDevices:
        """Of an array that callers hand in as ``sharding`` says, to every replica another one."""
        tile = _tile_of_partition(sharding, shape, partitions)
        return self.of([(d // partitions, tile[d % partitions]) for d in range(self.devices)])


def _tile_of_partition(
    sharding: HloSharding | None, shape: ArrayShape, partitions: int
) -> Sequence[Hashable]:
    """Something that is equal for partitions that hold the same tile."""
    if sharding is not None and sharding.kind is ShardingKind.REPLICATED:
        return [0] * partitions
    tiles = sharding.tiles if sharding is not None else None
    if sharding is None or tiles is None or tiles.num_devices != partitions:
        return range(partitions)
    if any(kind is not SubgroupType.REPLICATED for kind in sharding.subgroup_types):
        return range(partitions)
    ids = tiles.device_ids()
    held = ids.reshape(*ids.shape[: shape.rank], -1)
    tile: list[Hashable] = [None] * partitions
    for number, holders in enumerate(held.reshape(-1, held.shape[-1])):
        for partition in holders:
            tile[int(partition)] = number
    return tile
