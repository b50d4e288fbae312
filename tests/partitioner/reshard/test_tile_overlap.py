"""The symbolic count of devices whose tiles agree, against counting them."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from reshard_definition import Devices, all_states, tile_bounds

from partitioner.devices.axes import DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.bound import bound_elements, lower_bound
from partitioner.reshard.overlap import met_fraction
from partitioner.reshard.tile_overlap import same_tile_fraction
from spmd.device import ReductionKind
from spmd.shape import ArrayShape, PrimitiveType

SIZES = [(2,), (2, 2), (2, 2, 2), (4, 2), (2, 4), (2, 3), (3, 2), (6, 2), (3, 3)]


def sample(sizes: tuple[int, ...], rank: int) -> list[tuple[ShardState, ShardState]]:
    states = all_states(sizes, rank, partial=False)
    pairs = list(itertools.product(states, states))
    return random.Random(2).sample(pairs, min(300, len(pairs)))


@pytest.mark.parametrize("sizes", SIZES)
def test_same_tile(sizes: tuple[int, ...]) -> None:
    """The fraction is compared with the devices that keep their tile, for states with equal shard counts."""
    axes, devices = DeviceAxes(sizes), Devices(sizes)
    checked = 0
    for before, after in sample(sizes, 2):
        if before.shards(axes) != after.shards(axes):
            continue
        keep = sum(
            all(
                devices.index(d, a) == devices.index(d, b)
                for a, b in zip(before.dims, after.dims, strict=True)
            )
            for d in range(devices.count)
        )
        assert same_tile_fraction(axes, before.dims, after.dims) == pytest.approx(
            keep / devices.count
        )
        checked += 1
    assert checked


@pytest.mark.parametrize("sizes", SIZES)
def test_bound_without_reduction(sizes: tuple[int, ...]) -> None:
    """Exactly what devices lack, uneven sizes or not."""
    axes, devices = DeviceAxes(sizes), Devices(sizes)
    for source, target in sample(sizes, 2):
        for dims in [(72, 144), (7, 5)]:
            lacking = sum(
                missing_elements(devices, dims, source, target, d) for d in range(devices.count)
            )
            want = 4 * lacking / devices.count
            bound = lower_bound(axes, ArrayShape(PrimitiveType.F32, dims), source, target)
            assert bound == pytest.approx(want)


def missing_elements(
    devices: Devices, dims: tuple[int, ...], source: ShardState, target: ShardState, device: int
) -> int:
    """Elements of the target tile that lie outside the source tile."""
    needed, held = 1, 1
    bounds = zip(
        dims,
        tile_bounds(devices, source, dims, device),
        tile_bounds(devices, target, dims, device),
        strict=True,
    )
    for n, (have, have_size), (want, want_size) in bounds:
        first, last = want, min(n, want + want_size)
        needed *= max(0, last - first)
        held *= max(0, min(last, have + have_size) - max(first, have))
    return needed - held


def test_many_uneven_tiles_are_not_listed() -> None:
    """The bound is then weaker, as if tiles met everywhere."""
    axes, dims = DeviceAxes((7, 5)), (701, 501)
    target = ShardState(((1,), (0,)))
    for source in (ShardState(((0,), (1,))), ShardState(((0,), ()), (1,), ReductionKind.SUM)):
        exact = bound_elements(axes, dims, source, target, 35)
        assert 0 <= bound_elements(axes, dims, source, target, 35, most_listed=10) < exact


@pytest.mark.parametrize("sizes", SIZES)
def test_elements_that_a_device_has_before_and_after(sizes: tuple[int, ...]) -> None:
    """They are counted by digits where everything divides, else by pieces."""
    axes, devices = DeviceAxes(sizes), Devices(sizes)
    for dims in [(24, 48), (7, 5)]:
        for source, target in sample(sizes, 2)[:100]:
            met = np.zeros(dims, dtype=bool)
            for device in range(devices.count):
                both = np.ones(dims, dtype=bool)
                for state in (source, target):
                    inside = np.zeros(dims, dtype=bool)
                    rows, columns = tile_bounds(devices, state, dims, device)
                    inside[rows[0] : sum(rows), columns[0] : sum(columns)] = True
                    both &= inside
                met |= both
            assert met_fraction(axes, dims, source.dims, target.dims) == pytest.approx(met.mean())


@pytest.mark.parametrize(
    ("sizes", "source", "target", "elements"),
    [
        ((4,), ShardState(((),), (0,), ReductionKind.SUM), ShardState(((),)), 2 * 3 / 4 * 64),
        ((4,), ShardState(((),), (0,), ReductionKind.SUM), ShardState(((0,),)), 3 / 4 * 64),
        # Two of four terms are left, each in two copies.
        (
            (2, 2),
            ShardState(((),), (0, 1), ReductionKind.SUM),
            ShardState(((),), (1,), ReductionKind.SUM),
            64,
        ),
        # Two of eight terms are left, in four copies each: cheapest is one sum with its copies, and zero as the other.
        (
            (4, 2),
            ShardState(((),), (0, 1), ReductionKind.SUM),
            ShardState(((),), (1,), ReductionKind.SUM),
            (7 + 3) * 64 / 8,
        ),
        # Rows are wanted by devices that hold columns: half of the sums are made elsewhere first.
        (
            (2, 2),
            ShardState(((0,),), (1,), ReductionKind.SUM),
            ShardState(((1, 0),)),
            (1 + 1 / 2) * 64 / 4,
        ),
        # Half the array each: two devices hold each term of it.
        ((2, 2), ShardState(((1,),), (0,), ReductionKind.SUM), ShardState(((1,),)), 32),
    ],
)
def test_bound_of_reductions(
    sizes: tuple[int, ...], source: ShardState, target: ShardState, elements: float
) -> None:
    shape = ArrayShape(PrimitiveType.F32, (64,))
    assert lower_bound(DeviceAxes(sizes), shape, source, target) == 4 * elements
