"""Tiles: every element lies where the tile assignment says, and comes back."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.arrays.sharded_arrays import gather, shard_of, tile_region
from spmd.device import IotaTile
from spmd.shape import ArrayShape, PrimitiveType
from spmd.sharding import HloSharding, SubgroupType, TileAssignment


@st.composite
def placements(draw: st.DrawFn) -> tuple[HloSharding, ArrayShape, np.ndarray]:
    """A tiled sharding, a shape (uneven and empty sizes included) and the device ids of its tiles."""
    tiles = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    copies = draw(st.sampled_from([1, 2]))
    sizes = [draw(st.integers(0, 9)) for _ in tiles]
    dims = (*tiles, copies)
    devices = tuple(draw(st.permutations(range(int(np.prod(dims))))))
    assignment = TileAssignment(IotaTile.of(dims), devices)
    sharding = HloSharding.tiled(assignment, (SubgroupType.REPLICATED,))
    return sharding, ArrayShape(PrimitiveType.S32, tuple(sizes)), np.array(devices).reshape(dims)


@given(placements())
def test_each_element_lies_on_the_devices_of_its_tile(
    placement: tuple[HloSharding, ArrayShape, np.ndarray],
) -> None:
    sharding, shape, devices = placement
    array = np.arange(1, shape.num_elements + 1, dtype=np.int32).reshape(shape.dims)
    tile_sizes = [-(-n // t) for n, t in zip(shape.dims, devices.shape, strict=False)]
    held = {int(device): shard_of(array, sharding, shape, int(device)) for device in devices.flat}
    for position in itertools.product(*map(range, shape.dims)):
        tile = tuple(i // n for i, n in zip(position, tile_sizes, strict=True))
        inside = tuple(i % n for i, n in zip(position, tile_sizes, strict=True))
        for device in devices[tile]:
            assert held[int(device)][inside] == array[position]
    for tile in held.values():
        assert tile.shape == tuple(tile_sizes)
        assert tile.flags.c_contiguous
    total = sum(int((tile != 0).sum()) for tile in held.values())
    assert total == shape.num_elements * devices.shape[-1]  # everything else is padding


@given(placements())
def test_assembling_tiles_gives_the_array_whatever_the_padding_holds(
    placement: tuple[HloSharding, ArrayShape, np.ndarray],
) -> None:
    sharding, shape, devices = placement
    array = np.arange(1, shape.num_elements + 1, dtype=np.int32).reshape(shape.dims)
    tiles = []
    for device in range(devices.size):
        tile = shard_of(array, sharding, shape, device)
        tile[tile == 0] = -7
        tiles.append(tile)
    assert np.array_equal(gather(tiles, sharding, shape), array)


def test_replicated_and_maximal_are_whole() -> None:
    shape = ArrayShape(PrimitiveType.F32, (2,))
    array = np.array([1, 2], np.float32)
    assert tile_region(HloSharding.replicated(), shape, 3) == (slice(0, 2),)
    assert np.array_equal(shard_of(array, HloSharding.maximal(1), shape, 1), array)
    tiles = [np.zeros(2, np.float32), array]
    assert np.array_equal(gather(tiles, HloSharding.maximal(1), shape), array)


def test_a_scalar_has_no_dimensions_to_cut() -> None:
    shape = ArrayShape(PrimitiveType.F32, ())
    array = np.array(3.0, np.float32)
    tile = shard_of(array, HloSharding.replicated(), shape, 0)
    assert tile.shape == ()
    assert gather([tile], HloSharding.replicated(), shape).shape == ()
