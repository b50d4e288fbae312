"""Each step kind as it is written: the examples of the docstrings, and the forms XLA's partitioner writes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from reshard_definition import emit_program

from partitioner.devices.axes import DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.step import ReshardStep
from partitioner.reshard.steps.all_gather import AllGatherStep
from partitioner.reshard.steps.all_reduce import AllReduceStep
from partitioner.reshard.steps.all_to_all import AllToAllStep
from partitioner.reshard.steps.permute import PermuteStep, source_target_pairs
from partitioner.reshard.steps.reduce_scatter import ReduceScatterStep
from partitioner.reshard.steps.slice_step import SliceStep
from spmd.device import ReductionKind
from spmd.shape import ArrayShape, PrimitiveType
from spmd.source_target_pairs import LinePairs, ListedPairs

F32 = PrimitiveType.F32
SUM = ReductionKind.SUM


def written(
    sizes: tuple[int, ...], dims: tuple[int, ...], source: ShardState, *steps: ReshardStep
) -> list[str]:
    """The instructions after the parameter, without constants and names: ``shape opcode attributes``."""
    module = emit_program(DeviceAxes(sizes), ArrayShape(F32, dims), source, steps)
    lines = []
    for line in str(module).partition("\nENTRY ")[2].partition("\n}")[0].splitlines()[1:]:
        text = line.partition(" = ")[2]
        if " parameter(" not in text and " constant(" not in text:
            lines.append(re.sub(r"\(.*?\)(, )?", " ", text, count=1).strip())
    return lines


def test_slice() -> None:
    step = SliceStep(((0, 1),))
    assert step.apply(ShardState(((),))) == ShardState(((0, 1),))
    assert written((2, 2), (8,), ShardState(((),)), step) == [
        "u32[] partition-id",
        "s32[] convert",
        "s32[] multiply",
        "f32[2] dynamic-slice dynamic_slice_sizes={2}",
    ]


def test_slice_of_an_uneven_dimension_pads_it_first() -> None:
    assert written((4,), (7,), ShardState(((),)), SliceStep(((0,),)))[-2:] == [
        "f32[8] pad padding=0_1",
        "f32[2] dynamic-slice dynamic_slice_sizes={2}",
    ]


def test_slice_of_several_dimensions_is_one() -> None:
    lines = written((2, 2), (8, 6), ShardState(((), ())), SliceStep(((1,), (0,))))
    assert [line for line in lines if "slice" in line] == [
        "f32[4,3] dynamic-slice dynamic_slice_sizes={4,3}"
    ]


def test_all_gather() -> None:
    source = ShardState(((0, 1), ()))
    step = AllGatherStep(0, 1)
    assert step.apply(source) == ShardState(((0,), ()))
    assert written((2, 4), (8, 8), source, step) == [
        "f32[4,8] all-gather channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}, use_global_device_ids=true"
    ]


def test_all_gather_of_an_uneven_dimension_trims_it() -> None:
    assert written((2, 2), (7,), ShardState(((0,),)), AllGatherStep(0, 1)) == [
        "f32[8] all-gather channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}, use_global_device_ids=true",
        "f32[7] slice slice={[0:7]}",
    ]


def test_all_to_all_from_two_dimensions_is_one_exchange() -> None:
    source = ShardState(((0,), (), (1,)))
    step = AllToAllStep(((0,), (), (1,)), ((), (0, 1), ()))
    assert step.apply(source) == ShardState(((), (0, 1), ()))
    assert written((2, 4), (8, 8, 8), source, step) == [
        "f32[4,8,1,2] reshape",
        "f32[4,8,1,2] all-to-all channel_id=1, replica_groups=[1,8]<=[8], dimensions={1}",
        "f32[4,2,4,1,2] reshape",
        "f32[2,4,1,4,2] transpose dimensions={1,0,3,2,4}",
        "f32[8,1,8] reshape",
    ]


def test_permute() -> None:
    step = PermuteStep(((1, 0),))
    assert step.apply(ShardState(((0, 1),))) == ShardState(((1, 0),))
    assert written((2, 2), (8,), ShardState(((0, 1),)), step) == [
        "f32[2] collective-permute channel_id=1, source_target_pairs={{0,0},{2,1},{1,2},{3,3}}"
    ]


def test_permute_keeps_what_is_in_place() -> None:
    axes = DeviceAxes((2, 2))
    assert source_target_pairs(axes, ((0,),), ((1,),)).expand() == ((0, 0), (2, 1), (1, 2), (3, 3))


def test_reduce_scatter() -> None:
    source = ShardState(((),), (0,), SUM)
    step = ReduceScatterStep(0, (0,))
    assert step.apply(source) == ShardState(((0,),))
    assert written((4,), (8,), source, step) == [
        (
            "f32[2] reduce-scatter channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true, "
            "dimensions={0}, to_apply=sum_f32"
        )
    ]


def test_all_reduce_over_some_of_the_axes() -> None:
    source = ShardState(((),), (0, 1), SUM)
    step = AllReduceStep((1,))
    assert step.apply(source) == ShardState(((),), (0,), SUM)
    assert written((2, 2), (8,), source, step) == [
        "f32[8] all-reduce channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=sum_f32"
    ]


@pytest.mark.parametrize(
    ("step", "source", "bytes_sent"),
    [
        (SliceStep(((0,), ())), ShardState(((), ())), 0),
        (AllGatherStep(0, 1), ShardState(((0,), ())), 3 * 4 * 20 * 4),  # three tiles of 4 x 20
        (
            AllGatherStep(1, 2),
            ShardState(((), (0, 1))),
            7 * 16 * 3 * 4,
        ),  # tiles of 3, the last ones padding
        (AllToAllStep(((0,), ()), ((), (0,))), ShardState(((0,), ())), 3 * 4 * 5 * 4),
        (ReduceScatterStep(0, (0,)), ShardState(((), ()), (0,), SUM), 3 * 4 * 20 * 4),
        (AllReduceStep((0,)), ShardState(((), ()), (0,), SUM), 2 * 3 / 4 * 16 * 20 * 4),
    ],
)
def test_bytes_sent(step: ReshardStep, source: ShardState, bytes_sent: float) -> None:
    """The weights of wire_weight: all-gather (n-1)/n of the result, all-reduce 2(n-1)/n, reduce-scatter n-1, ..."""
    axes, shape = DeviceAxes((4, 2)), ArrayShape(F32, (16, 20))
    assert step.wire_bytes(axes, shape, source) == bytes_sent


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (((0, 1),), ((1, 0),), 1 / 2),
        (((0,),), ((1,),), 1 / 2),
        (((0,), (1,)), ((1,), (0,)), 1 / 2),
        (((0, 1),), ((0, 2),), 1 / 2),
        (((0, 1, 2),), ((2, 0, 1),), 3 / 4),
        (((0,), (1,), (2,)), ((1,), (2,), (0,)), 3 / 4),
    ],
)
def test_a_permute_sends_what_is_not_in_place(
    before: tuple[tuple[int, ...], ...], after: tuple[tuple[int, ...], ...], moved: float
) -> None:
    axes, shape = DeviceAxes((2, 2, 2)), ArrayShape(F32, (8,) * len(before))
    tile = 4 * 8 ** len(before) / axes.count(a for dim in before for a in dim)
    step = PermuteStep(after)
    assert step.wire_bytes(axes, shape, ShardState(before)) == moved * tile
    pairs = source_target_pairs(axes, before, after)
    assert sum(s != t for s, t in pairs) == moved * 8
    assert sorted(s for s, _ in pairs) == [t for _, t in pairs] == list(range(8))


@pytest.mark.parametrize(
    ("sizes", "before", "after", "form"),
    [
        ((2, 4, 2), ((0,),), ((2,),), LinePairs),
        ((2, 2, 2, 2), ((0, 1), (2,)), ((1, 2), (3,)), LinePairs),  # 0 <- 1 <- 2 <- 3 <- 0
        ((4, 2, 2), ((0,), ()), ((2, 1), ()), LinePairs),
        ((6, 3, 2), ((0,),), ((2, 1),), LinePairs),
        ((6, 3, 2), ((0,),), ((1, 2),), ListedPairs),  # digits (2, 3) and (3, 2)
    ],
)
def test_a_permute_brings_each_device_its_tile(
    sizes: tuple[int, ...],
    before: tuple[tuple[int, ...], ...],
    after: tuple[tuple[int, ...], ...],
    form: type,
) -> None:
    """Along axes that split nothing, source and target agree; a device that holds its tile is its own source."""
    axes = DeviceAxes(sizes)
    named = {axis for dim in (*before, *after) for axis in dim}

    def tile(device: int, dims: tuple[tuple[int, ...], ...]) -> list[int]:
        place = np.unravel_index(device, sizes)
        split = [
            int(np.ravel_multi_index([place[a] for a in dim], [sizes[a] for a in dim]))
            for dim in dims
            if dim
        ]
        return split + [int(place[a]) for a in axes.spread(named)]

    pairs = source_target_pairs(axes, before, after)
    assert isinstance(pairs, form)
    assert [target for _, target in pairs] == list(range(axes.num_devices))
    assert sorted(source for source, _ in pairs) == list(range(axes.num_devices))
    for source, target in pairs:
        assert tile(source, before) == tile(target, after)
        assert (source == target) is (tile(target, before) == tile(target, after))


def test_an_empty_array_is_made_where_it_is_needed() -> None:
    """No collective over nothing."""
    source = ShardState(((0,), ()), (1,), SUM)
    lines = written((2, 2), (0, 6), source, AllReduceStep((1,)), AllGatherStep(0, 1))
    assert not any("all-" in line for line in lines)
    assert lines[-1] == "f32[0,6] broadcast dimensions={}"
