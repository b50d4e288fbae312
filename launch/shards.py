"""Global arrays to each device's tile and back, as entry parameters' and outputs' shardings say.

    f32[5] {devices=[2]<=[2]}     device 0 holds elements 0,1,2; device 1 holds 3,4 and one element of padding

A tile has the same size on every device; what lies beyond the array's end is padding, zero on the way in.
Shardings are over partitions; every replica holds the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from launch.inputs import Array
from spmd.shape import ArrayShape, as_array
from spmd.sharding import HloSharding, ShardingKind


def tile_of(sharding: HloSharding, shape: ArrayShape, partition: int) -> tuple[slice, ...]:
    """The region of the global array that ``partition`` holds, padding left out; empty slices where it holds none."""
    if sharding.kind is not ShardingKind.TILED or sharding.tiles is None:
        return tuple(slice(0, size) for size in shape.dims)
    place = np.argwhere(sharding.tiles.device_ids() == partition)[0]
    sizes = as_array(sharding.shard_shape(shape)).dims
    starts = [
        min(int(i) * tile, size) for i, tile, size in zip(place, sizes, shape.dims, strict=False)
    ]
    return tuple(
        slice(start, min(start + tile, size))
        for start, tile, size in zip(starts, sizes, shape.dims, strict=True)
    )


def take_tile(array: Array, sharding: HloSharding, shape: ArrayShape, partition: int) -> Array:
    """``partition``'s tile of the global ``array``, C-contiguous, padded with zeros to the common size."""
    region = array[tile_of(sharding, shape, partition)]
    sizes = as_array(sharding.shard_shape(shape)).dims
    if region.shape == sizes:
        return np.ascontiguousarray(region).reshape(sizes)
    tile = np.zeros(sizes, array.dtype)
    tile[tuple(slice(0, n) for n in region.shape)] = region
    return tile


def assemble(tiles: Sequence[Array], sharding: HloSharding, shape: ArrayShape) -> Array:
    """The global array from the tiles of partitions 0, 1, ...; where several hold the same, the first one's."""
    if sharding.kind is not ShardingKind.TILED:
        source = sharding.device if sharding.kind is ShardingKind.MAXIMAL else 0
        return np.array(tiles[source], copy=True).reshape(shape.dims)
    array = np.empty(shape.dims, tiles[0].dtype)
    for partition in reversed(range(len(tiles))):
        region = tile_of(sharding, shape, partition)
        valid = tuple(slice(0, part.stop - part.start) for part in region)
        array[region] = tiles[partition][valid]
    return array
