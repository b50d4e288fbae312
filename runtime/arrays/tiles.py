"""Conversion of global arrays to the devices' tiles and back, by the shardings of the entry's parameters and root.

    f32[5] {devices=[2]<=[2]}     partition 0 holds elements 0,1,2; partition 1 holds 3,4 and one element of padding

Tiles have one size on all devices: elements beyond the array are padding, which is zero in inputs and dropped from
outputs. Shardings divide among partitions; every replica has the same tiles.

Along unreduced axes the devices hold terms, whose sum is the array. An input becomes the first term; the others are
zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.device import IotaTile
from spmd.errors import ShardingError
from spmd.literal import NDArray
from spmd.shape import ArrayShape, as_array
from spmd.sharding import HloSharding, ShardingKind, SubgroupType, TileAssignment


def global_shape(shard: ArrayShape, sharding: HloSharding | None) -> ArrayShape:
    """Return the largest array whose tiles have the shape ``shard`` (without padding)."""
    if sharding is None or sharding.kind is not ShardingKind.TILED:
        return shard
    return shard.with_dims(
        tuple(n * t for n, t in zip(shard.dims, sharding.tile_dims, strict=True))
    )


def tile_region(
    sharding: HloSharding | None, shape: ArrayShape, partition: int
) -> tuple[slice, ...]:
    """Return the region of the global array that ``partition`` holds, without padding."""
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


def with_devices(sharding: HloSharding, rank: int, partitions: int) -> HloSharding:
    """Return ``{unreduced}`` as tiles, one term of the sum for each partition; any other sharding as it is."""
    if sharding.kind is not ShardingKind.UNREDUCED:
        return sharding
    tiles = TileAssignment(IotaTile.of((1,) * rank + (partitions,)))
    return HloSharding.tiled(tiles, (SubgroupType.UNREDUCED,))


def term_of(sharding: HloSharding | None, partition: int) -> int:
    """Return which term of the sums ``partition`` holds; 0 where the sharding has no partial sums."""
    if (
        sharding is None
        or sharding.tiles is None
        or SubgroupType.UNREDUCED not in sharding.subgroup_types
    ):
        return 0
    where = np.argwhere(sharding.tiles.device_ids() == partition)
    if not len(where):
        raise ShardingError(f"partition {partition} has no tile in {sharding}")
    term, rank = 0, len(sharding.tile_dims)
    for kind, index, count in zip(
        sharding.subgroup_types, where[0][rank:], sharding.tiles.dims[rank:], strict=True
    ):
        if kind is SubgroupType.UNREDUCED:
            term = term * count + int(index)
    return term


def shard_of(
    array: NDArray, sharding: HloSharding | None, shape: ArrayShape, partition: int
) -> NDArray:
    """Return ``partition``'s tile of ``array`` (of ``shape``), in new memory, padded with zeros to the common size."""
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
    """Write ``partition``'s tile of ``array`` (of ``shape``) to ``tile``: no other part of ``array`` is read.

    Of partial sums, devices other than the first of each unreduced group get zeros.
    """
    if term_of(sharding, partition):
        tile.fill(0)
        return
    part = array.reshape(shape.dims)[tile_region(sharding, shape, partition)]
    if part.shape == tile.shape:
        np.copyto(tile, part)
        return
    tile.fill(0)
    tile[tuple(slice(0, n) for n in part.shape)] = part


def gather(tiles: Sequence[NDArray], sharding: HloSharding | None, shape: ArrayShape) -> NDArray:
    """Return the global array of the tiles of partitions 0, 1, ...; of equal tiles the first one counts.

    Of partial sums it is the sum of the terms, in order of partitions.
    """
    if sharding is None or sharding.kind is not ShardingKind.TILED:
        source = sharding.device if sharding and sharding.kind is ShardingKind.MAXIMAL else 0
        full = np.array(tiles[source], copy=True)
        return full if any(shape.dynamic) else full.reshape(shape.dims)
    if SubgroupType.UNREDUCED in sharding.subgroup_types:
        return _sum_of_terms(tiles, sharding, shape)
    full = np.empty(shape.dims, tiles[0].dtype)
    for partition in reversed(range(len(tiles))):
        region = tile_region(sharding, shape, partition)
        inside = tuple(slice(0, part.stop - part.start) for part in region)
        full[region] = tiles[partition][inside]
    return full


def _sum_of_terms(tiles: Sequence[NDArray], sharding: HloSharding, shape: ArrayShape) -> NDArray:
    """Add up the partial sums that the partitions hold, each term of each tile once."""
    full = np.zeros(shape.dims, tiles[0].dtype)
    added: set[tuple[int, tuple[int, ...]]] = set()
    for partition, tile in enumerate(tiles):
        region = tile_region(sharding, shape, partition)
        term = (term_of(sharding, partition), tuple(part.start for part in region))
        if term not in added:
            added.add(term)
            full[region] += tile[tuple(slice(0, part.stop - part.start) for part in region)]
    return full
