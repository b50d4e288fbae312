"""Division of global arrays into tiles on devices, by the shardings of the entry's parameters and root.

    f32[5] {devices=[2]<=[2]}     partition 0 holds elements 0,1,2; partition 1 holds 3,4 and one element of padding

Tiles have one size on all devices: elements beyond the array are padding, which is zero in inputs and dropped from
outputs. Shardings divide among partitions; every replica has the same tiles.

Along unreduced axes the devices hold terms, whose sum is the array. An input becomes the first term; the others are
zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.arrays.slots import DeviceArray
from spmd.device import IotaTile
from spmd.errors import RunError, ShardingError
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import ArrayShape, PrimitiveType, Shape, as_array
from spmd.sharding import HloSharding, ShardingKind, SubgroupType, TileAssignment


def global_shape(shard: ArrayShape, sharding: HloSharding | None) -> ArrayShape:
    """Return the shape of the largest global array whose tiles have the shape ``shard``, which has no padding."""
    if sharding is None or sharding.kind is not ShardingKind.TILED:
        return shard
    return shard.with_dims(
        tuple(n * t for n, t in zip(shard.dims, sharding.tile_dims, strict=True))
    )


def tile_region(
    sharding: HloSharding | None, shape: ArrayShape, partition: int
) -> tuple[slice, ...]:
    """Return the region of a global array of ``shape`` that ``partition`` holds, without padding.

    Raises ShardingError if the sharding gives the partition no tile.
    """
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
    """Return ``{unreduced}`` as a tiled sharding with one term of the sum for each partition, of arrays of ``rank``.

    Any other sharding is returned unchanged.
    """
    if sharding.kind is not ShardingKind.UNREDUCED:
        return sharding
    tiles = TileAssignment(IotaTile.of((1,) * rank + (partitions,)))
    return HloSharding.tiled(tiles, (SubgroupType.UNREDUCED,))


def term_of(sharding: HloSharding | None, partition: int) -> int:
    """Return the number of the term of the sums that ``partition`` holds; 0 if the sharding has no partial sums.

    Raises ShardingError if the sharding gives the partition no tile.
    """
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
    """Return the tile of ``array`` (of ``shape``) for ``partition``, in newly allocated memory.

    It is padded with zeros to the common size of the tiles.
    """
    sizes = shape.dims if sharding is None else as_array(sharding.shard_shape(shape)).dims
    tile = np.empty(sizes, array.dtype)
    copy_shard(array, sharding, shape, partition, tile)
    return tile


def copy_tile(tile: NDArray, memory: NDArray) -> None:
    """Write a tile to a device's ``memory`` for it. Raises RunError if its type or sizes are others."""
    if tile.shape != memory.shape or tile.dtype != memory.dtype:
        raise RunError(
            f"a tile is {tile.dtype}{list(tile.shape)}, expected {memory.dtype}{list(memory.shape)}"
        )
    np.copyto(memory, tile)


def copy_shard(
    array: NDArray,
    sharding: HloSharding | None,
    shape: ArrayShape,
    partition: int,
    tile: NDArray,
) -> None:
    """Write the tile of ``array`` (of ``shape``) for ``partition`` to ``tile``. No other part of ``array`` is read.

    If the sharding has partial sums, partitions that hold another term than the first get zeros.
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
    """Return the global array of ``shape``, joined from ``tiles``, which are those of partitions 0, 1, ...

    If several partitions hold the same tile, that of the lowest one is used. Partial sums are added up in the order of
    the partitions.
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
    """Return the sum of the partial sums that the partitions hold. Each term of each tile is added once."""
    full = np.zeros(shape.dims, tiles[0].dtype)
    added: set[tuple[int, tuple[int, ...]]] = set()
    for partition, tile in enumerate(tiles):
        region = tile_region(sharding, shape, partition)
        term = (term_of(sharding, partition), tuple(part.start for part in region))
        if term not in added:
            added.add(term)
            full[region] += tile[tuple(slice(0, part.stop - part.start) for part in region)]
    return full


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Global shape and sharding of an argument or result. If ``sharding`` is None, each device has the entire array."""

    shape: ArrayShape
    sharding: HloSharding | None


@dataclass(frozen=True)
class ShardedArrays:
    """Sequence of arrays as tiles on this process's devices: ``tiles[d][i]`` is device d's tile of array i.

    ``specs[i]`` is the global shape and sharding of array i. ``Executable.put`` creates the tiles; a run takes and
    returns them. Indices, slices and sums select and concatenate arrays: ``state = executable.run(state)[:2] + batch``.
    ``numpy.asarray(state[0])`` is the global array of the first one if this process has all of its tiles. A run donates
    the arrays that its outputs alias: their later use raises DonatedError. All others are valid as long as they are
    referenced.
    """

    tiles: tuple[tuple[DeviceArray, ...], ...]
    specs: tuple[ArraySpec, ...]

    def __len__(self) -> int:
        return len(self.specs)

    def __getitem__(self, which: int | slice) -> ShardedArrays:
        """Return the arrays of a slice, or the single array with the index ``which``. Raises IndexError."""
        if not isinstance(which, slice):
            number = range(len(self))[which]  # IndexError, which also ends an iteration
            which = slice(number, number + 1)
        return ShardedArrays(tuple(own[which] for own in self.tiles), self.specs[which])

    def __add__(self, other: ShardedArrays) -> ShardedArrays:
        """Return the arrays of both sequences, which must be on the same devices."""
        tiles = zip(self.tiles, other.tiles, strict=True)
        return ShardedArrays(tuple(a + b for a, b in tiles), self.specs + other.specs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return a copy of the global array, if there is one array.

        Raises TypeError if there are several arrays, ValueError if ``copy`` is False, and RunError if some tiles are on
        other ranks or the size is another output of the program.
        """
        if len(self) != 1:
            raise TypeError(
                f"{len(self)} arrays are no single NumPy array: choose one, as in state[0], or use executable.get"
            )
        if copy is False:
            raise ValueError("a divided array cannot be handed out without a copy")
        (spec,) = self.specs
        if any(spec.shape.dynamic):
            raise RunError(f"the size of {spec.shape} is another output: use executable.get(state)")
        tiles = [own[0].view() for own in self.tiles]
        sharding = spec.sharding
        wanted = 1 if sharding is None else sharding.num_devices or 1
        is_elsewhere = sharding is not None and sharding.kind is ShardingKind.MAXIMAL
        if len(tiles) < wanted or (is_elsewhere and len(tiles) == 1):
            raise RunError(
                f"this process has {len(tiles)} of the tiles of {spec.shape.without_layout()} {sharding}: "
                'use executable.get(state, gather="all") on every rank'
            )
        tiled = sharding is not None and sharding.is_tiled
        return gather(tiles[:wanted] if tiled else tiles, sharding, spec.shape).astype(
            dtype, copy=False
        )


# ---- arrays of bounded dynamic shape
#
# Arrays of bounded dynamic shape: a program returns them padded to their bounds, together with their sizes.
#
# outputs f32[<=8,4], pred[], s32[]     the last one is the size of dimension 0 of the first


_SIZE = ArrayShape(PrimitiveType.S32, ())


def bounded_dimensions(shapes: Sequence[Shape]) -> list[tuple[int, int]]:
    """Return (number of the array, dimension) for each bounded dynamic dimension, in the order of the size outputs."""
    return [
        (k, d)
        for k, shape in enumerate(shapes)
        if isinstance(shape, ArrayShape)
        for d, is_dynamic in enumerate(shape.dynamic)
        if is_dynamic
    ]


def num_results(shapes: Sequence[ArrayShape]) -> int:
    """Return how many of a program's outputs are results; the sizes follow them. ``shapes``: shapes of all outputs."""
    return len(shapes) - len(bounded_dimensions(shapes))


def have_sizes(shapes: Sequence[ArrayShape]) -> bool:
    """Return whether the last outputs of a program can be the sizes of the bounded dimensions of the outputs before."""
    count = num_results(shapes)
    return count >= 0 and all(shape == _SIZE for shape in shapes[count:])


def cut_to_sizes(arrays: Sequence[NDArray], shapes: Sequence[ArrayShape]) -> list[NDArray]:
    """Return the results of a program, sliced to their true sizes, without the sizes.

    arrays: all outputs of the program, of ``shapes``. Raises RunError if a size exceeds its bound or is negative.
    """
    bounded = bounded_dimensions(shapes)
    count = num_results(shapes)
    cut = list(arrays[:count])
    for (k, d), size in zip(bounded, map(int, arrays[count:]), strict=True):
        bound = shapes[k].dims[d]
        if not 0 <= size <= bound:
            raise RunError(f"size {size} of dimension {d} of output {k} leaves the bound {bound}")
        cut[k] = cut[k][(slice(None),) * d + (slice(size),)]
    return cut
