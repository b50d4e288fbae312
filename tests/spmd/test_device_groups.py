"""Groups as patterns against the same groups one by one."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd.device import CollectiveGroupMode, IotaTile, ReplicaGroups
from spmd.device_groups import DeviceGroups
from spmd.ops.groups import as_devices, find_participating_groups, id_count


@st.composite
def tiles(draw: st.DrawFn) -> IotaTile:
    """Lines of any length that divides the devices, also where a digit is cut in two."""
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3)))
    order = tuple(draw(st.permutations(range(len(sizes)))))
    devices = math.prod(sizes)
    size = draw(st.sampled_from([n for n in range(1, devices + 1) if devices % n == 0]))
    return IotaTile((devices // size, size), sizes, order)


def listed(tile: IotaTile) -> list[list[int]]:
    return sorted(tile.ids().tolist())


@given(tiles())
def test_patterns_hold_the_groups_that_they_are_of(tile: IotaTile) -> None:
    groups = DeviceGroups.of_lines(tile)
    assert [list(group) for group in groups] == listed(tile)
    assert len(groups) == tile.dims[0]
    assert groups.size == tile.dims[1]
    assert groups.covers(math.prod(tile.dims))
    assert not groups.covers(math.prod(tile.dims) + 1)


@given(tiles(), tiles())
def test_equal_are_equal_groups_in_any_form(one: IotaTile, other: IotaTile) -> None:
    same = listed(one) == listed(other)
    assert (DeviceGroups.of_lines(one) == DeviceGroups.of_lines(other)) is same
    assert (DeviceGroups.of(listed(one)) == DeviceGroups.of_lines(other)) is same
    if same:
        assert hash(DeviceGroups.of(listed(one))) == hash(DeviceGroups.of_lines(other))


@given(tiles())
def test_digits_are_a_members_place(tile: IotaTile) -> None:
    groups = DeviceGroups.of_lines(tile)
    devices = math.prod(tile.dims)
    if groups.member_strides is None:
        return
    place = np.zeros(devices, np.int64)
    for stride, size in groups.member_strides:
        place = place * size + np.arange(devices) // stride % size
    assert place.tolist() == groups.positions(devices).tolist()


@pytest.mark.parametrize(
    ("groups", "number", "place"),
    [
        ([[3, 1], [0, 2]], [0, 1, 0, 1, -1], [0, 1, 1, 0, -1]),
        ([[4, 0, 2], [1]], [1, 0, 1, -1, 1], [1, 0, 2, -1, 0]),
        ([[], [2]], [-1, -1, 0, -1, -1], [-1, -1, 0, -1, -1]),
    ],
)
def test_other_groups(groups: list[list[int]], number: list[int], place: list[int]) -> None:
    found = DeviceGroups.of(groups)
    assert found.lines is None
    assert [list(group) for group in found] == sorted(group for group in groups if group)
    assert found.number(5).tolist() == number
    assert found.positions(5).tolist() == place


@pytest.mark.parametrize("mode", CollectiveGroupMode)
@pytest.mark.parametrize(("partitions", "replicas"), [(4, 1), (1, 6), (6, 2), (2, 3)])
def test_what_ids_mean_is_the_same_of_patterns_and_lists(
    mode: CollectiveGroupMode, partitions: int, replicas: int
) -> None:
    count = id_count(mode, partitions, replicas)
    for size in (n for n in range(1, count + 1) if count % n == 0):
        sizes = (count // 2, 2) if count % 2 == 0 else (count,)
        for order in permutations(range(len(sizes))):
            written = ReplicaGroups(iota=IotaTile((count // size, size), sizes, order))
            ids = written.expand(count)
            groups = find_participating_groups(written, mode, partitions, replicas)
            assert groups == find_participating_groups(
                ReplicaGroups(ids), mode, partitions, replicas
            )
            assert groups is not None
            assert [*groups] == sorted(as_devices(ids, mode, partitions, replicas))


def test_a_pattern_of_many_devices_is_not_written_out() -> None:
    """2^40 devices are in no list."""
    groups = DeviceGroups.of_lines(IotaTile((1 << 20, 1 << 20), (1 << 20, 1 << 20), (1, 0)))
    assert groups.covers(1 << 40)
    assert groups.member_strides == ((1 << 20, 1 << 20),)
