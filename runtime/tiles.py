"""Global arrays to the devices' tiles and back, by the shardings of the entry's parameters and root.

    f32[5] {devices=[2]<=[2]}     partition 0 holds elements 0,1,2; partition 1 holds 3,4 and one element of padding

Tiles have one size on all devices: what reaches beyond the array is padding, zero on the way in, dropped on the way
out. Shardings divide among partitions; every replica holds the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.errors import ShardingError
from spmd.literal import NDArray
from spmd.shape import ArrayShape, as_array
from spmd.sharding import HloSharding, ShardingKind


def global_shape(shard: ArrayShape, sharding: HloSharding | None) -> ArrayShape:
    """The largest array whose tiles have the shape ``shard`` (without padding)."""
    if sharding is None or sharding.kind is not ShardingKind.TILED:
        return shard
    return shard.with_dims(
        tuple(n * t for n, t in zip(shard.dims, sharding.tile_dims, strict=True))
    )


def tile_region(
    sharding: HloSharding | None, shape: ArrayShape, partition: int
) -> tuple[slice, ...]:
    """What of the global array ``partition`` holds, padding left out."""
    if sharding is None or sharding.kind is not ShardingKind.TILED or sharding.tiles is None:
        return tuple(slice(0, size) for size in shape.dims)
    where = np.argwhere(sharding.tiles.device_ids() == partition)
    if not len(where):
        raise ShardingError(f"partition {partition} has no tile in {sharding}")
    sizes = as_array(sharding.shard_shape(shape)).dims
    region = []
    for index, tile, size in zip(where[0], sizes, shape.dims, strict=False):
        start = min(int(index) * tile, size)
        region.append(slice(start, min(start + tile, size)))
    return tuple(region)


def shard_of(
    array: NDArray, sharding: HloSharding | None, shape: ArrayShape, partition: int
) -> NDArray:
    """``partition``'s tile of ``array`` (of ``shape``), in new memory, padded with zeros to the common size."""
    sizes = shape.dims if sharding is None else as_array(sharding.shard_shape(shape)).dims
    tile = np.empty(sizes, array.dtype)
    copy_shard(array, sharding, shape, partition, tile)
    return tile


def copy_shard(
    array: NDArray,
    sharding: HloSharding | None,
    shape: ArrayShape,
    partition: int,
    tile: NDArray,
) -> None:
    """Write ``partition``'s tile of ``array`` (of ``shape``) to ``tile``: no other part of ``array`` is read."""
    part = array.reshape(shape.dims)[tile_region(sharding, shape, partition)]
    if part.shape == tile.shape:
        np.copyto(tile, part)
        return
    tile.fill(0)
    tile[tuple(slice(0, n) for n in part.shape)] = part


def gather(tiles: Sequence[NDArray], sharding: HloSharding | None, shape: ArrayShape) -> NDArray:
    """The global array from the tiles of partitions 0, 1, ...; where several hold the same, the first one's."""
    if sharding is None or sharding.kind is not ShardingKind.TILED:
        source = sharding.device if sharding and sharding.kind is ShardingKind.MAXIMAL else 0
        whole = np.array(tiles[source], copy=True)
        return whole if any(shape.dynamic) else whole.reshape(shape.dims)
    whole = np.empty(shape.dims, tiles[0].dtype)
    for partition in reversed(range(len(tiles))):
        region = tile_region(sharding, shape, partition)
        inside = tuple(slice(0, part.stop - part.start) for part in region)
        whole[region] = tiles[partition][inside]
    return whole
