"""Device axes against their definition: lists of device ids made with NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes, common_axes
from spmd.device import IotaTile
from spmd.errors import ShardingError
from spmd.mesh import AxisRef, Mesh
from spmd.sharding import HloSharding, ShardingKind, SubgroupType, TileAssignment

SIZES = [(), (2,), (3,), (2, 2), (4, 2), (2, 3), (3, 2), (2, 2, 2), (2, 3, 4)]


def coordinates(sizes: tuple[int, ...], device: int) -> list[int]:
    found = []
    for size in reversed(sizes):
        found.append(device % size)
        device //= size
    return found[::-1]


def linear(sizes: tuple[int, ...], which: Axes, device: int) -> int:
    """The device's index along ``which`` taken as one axis."""
    digits = coordinates(sizes, device)
    total = 0
    for axis in which:
        total = total * sizes[axis] + digits[axis]
    return total


def selections(sizes: tuple[int, ...]) -> list[Axes]:
    """Every ordered list of distinct axes."""
    axes = range(len(sizes))
    return [p for k in range(len(sizes) + 1) for p in itertools.permutations(axes, k)]


def tile_of(sharding: HloSharding, rank: int, device: int) -> tuple[int, ...]:
    """Return the place of ``device`` in a tiled sharding: its tile number per dimension (then per subgroup)."""
    if sharding.tiles is None:
        return (0,) * rank
    (place,) = np.argwhere(sharding.tiles.device_ids() == device)
    return tuple(int(i) for i in place)


@pytest.mark.parametrize("sizes", SIZES)
def test_groups_hold_devices_that_differ_along_the_axes_alone(sizes: tuple[int, ...]) -> None:
    axes = DeviceAxes(sizes)
    for which in selections(sizes):
        groups = axes.groups(which).expand(axes.num_devices)
        assert sorted(d for group in groups for d in group) == list(range(axes.num_devices))
        for group in groups:
            assert [linear(sizes, which, d) for d in group] == list(range(axes.count(which)))
            assert len({linear(sizes, axes.spread(which), d) for d in group}) == 1


@pytest.mark.parametrize("sizes", SIZES)
def test_sharding_places_each_device_at_its_tile(sizes: tuple[int, ...]) -> None:
    axes = DeviceAxes(sizes)
    for used in selections(sizes):
        for cut in range(len(used) + 1):
            dims: DimAxes = (used[:cut], (), used[cut:])
            sharding = axes.sharding(dims)
            for device in range(axes.num_devices):
                tile = tuple(linear(sizes, held, device) for held in dims)
                assert tile_of(sharding, 3, device)[:3] == tile


@pytest.mark.parametrize("sizes", SIZES)
def test_sharding_and_back(sizes: tuple[int, ...]) -> None:
    axes = DeviceAxes(sizes)
    for used in selections(sizes):
        for cut in range(len(used) + 1):
            dims: DimAxes = (used[:cut], used[cut:])
            assert axes.axes_of_sharding(axes.sharding(dims), 2)[0] == dims


def test_subgroups_come_after_the_dimensions() -> None:
    axes = DeviceAxes((2, 3, 2))
    sharding = axes.sharding(((1,),), manual=(2,), partial=(0,))
    assert sharding.subgroup_types == (SubgroupType.MANUAL, SubgroupType.UNREDUCED)
    dims, groups = axes.axes_of_sharding(sharding, 1)
    assert dims == ((1,),)
    assert groups == {SubgroupType.MANUAL: (2,), SubgroupType.UNREDUCED: (0,)}


def test_all_devices_in_one_subgroup() -> None:
    axes = DeviceAxes((2, 2))
    assert axes.sharding(((),)) == HloSharding.replicated()
    assert axes.sharding(((),), manual=(0, 1)) == HloSharding.manual()
    assert axes.sharding(((),), partial=(0, 1)).kind is ShardingKind.UNREDUCED


def test_a_sharding_over_another_number_of_devices_is_refused() -> None:
    sharding = HloSharding.tiled(TileAssignment(IotaTile.of((2, 2))))
    with pytest.raises(ShardingError, match="4 devices"):
        DeviceAxes((2, 2, 2)).axes_of_sharding(sharding, 2)


def test_a_sharding_that_cuts_inside_an_axis_is_refused() -> None:
    sharding = HloSharding.tiled(TileAssignment(IotaTile.of((2, 4))))
    with pytest.raises(ShardingError):
        DeviceAxes((4, 2)).axes_of_sharding(sharding, 2)


def test_a_sharding_of_another_rank_is_refused() -> None:
    sharding = HloSharding.tiled(TileAssignment(IotaTile.of((2, 2))))
    with pytest.raises(ShardingError, match="2 dimensions"):
        DeviceAxes((2, 2)).axes_of_sharding(sharding, 3)


def test_common_axes_of_the_worked_example() -> None:
    shardings = [
        HloSharding.tiled(TileAssignment(IotaTile.of((4, 1, 2))), (SubgroupType.REPLICATED,)),
        HloSharding.tiled(TileAssignment(IotaTile((2, 4), (4, 2), (1, 0)))),
    ]
    axes = common_axes(8, shardings)
    assert axes.sizes == (4, 2)
    assert axes.axes_of_sharding(shardings[0], 2)[0] == ((0,), ())
    assert axes.axes_of_sharding(shardings[1], 2)[0] == ((1,), (0,))


def test_common_axes_leave_out_what_does_not_nest() -> None:
    first = HloSharding.tiled(TileAssignment(IotaTile.of((2, 3))))
    second = HloSharding.tiled(TileAssignment(IotaTile.of((3, 2))))
    axes = common_axes(6, [first, second])
    assert axes.sizes == (2, 3)
    assert axes.axes_of_sharding(first, 2)[0] == ((0,), (1,))
    with pytest.raises(ShardingError):
        axes.axes_of_sharding(second, 2)


def test_common_axes_of_one_device() -> None:
    assert common_axes(1, []).sizes == ()
    assert common_axes(4, []).sizes == (4,)


@given(data=st.data())
def test_common_axes_describe_every_sharding_that_nests(data: st.DataObject) -> None:
    """Shardings made from the axes of one hidden mesh are all described by the common axes."""
    sizes = data.draw(st.sampled_from([s for s in SIZES if s]))
    hidden = DeviceAxes(sizes)
    shardings = []
    for _ in range(data.draw(st.integers(1, 3))):
        order = data.draw(st.permutations(range(len(sizes))))
        cut = data.draw(st.integers(0, len(sizes)))
        shardings.append(hidden.sharding((tuple(order[:cut]), tuple(order[cut:]))))
    axes = common_axes(hidden.num_devices, shardings)
    assert math.prod(axes.sizes) == hidden.num_devices
    assert len(axes.sizes) <= len(sizes)
    for sharding in shardings:
        dims, _ = axes.axes_of_sharding(sharding, 2)
        for device in range(axes.num_devices):
            tile = tuple(linear(axes.sizes, held, device) for held in dims)
            assert tile == tile_of(sharding, 2, device)[:2]


def test_axes_of_meshes_and_sub_axes() -> None:
    mesh = Mesh("mesh", (("x", 2), ("one", 1), ("y", 4)))
    half = AxisRef("y", (2, 2))
    axes = common_axes(8, [], [(mesh, [half])])
    assert axes.sizes == (2, 2, 2)
    assert axes.axes_of_mesh(mesh) == {"x": (0,), "one": (), "y": (1, 2)}
    assert axes.axes_of_ref(mesh, half) == (2,)
    assert axes.axes_of_ref(mesh, AxisRef("y", (1, 2))) == (1,)
    assert axes.axes_of_ref(mesh, AxisRef("y")) == (1, 2)
    assert axes.axes_of_ref(mesh, AxisRef("one")) == ()


def test_the_size_of_an_answer_does_not_grow_with_the_devices() -> None:
    axes = DeviceAxes((1 << 10, 1 << 10))
    groups = axes.groups((0,))
    assert groups.iota == IotaTile((1 << 10, 1 << 10), (1 << 10, 1 << 10), (1, 0))
    sharding = axes.sharding(((1,), (0,)))
    assert axes.axes_of_sharding(sharding, 2)[0] == ((1,), (0,))
    assert common_axes(1 << 20, [sharding]).sizes == (1 << 10, 1 << 10)
