"""Tests of plan_reshard besides right and cheap plans: known plans, refusals, limits, the same plan every time."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from partitioner.devices.axes import DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.search import (
    HEURISTIC_WEIGHT,
    MAX_TRIED,
    MAX_TRIED_FINER,
    best_plan,
    plan_reshard,
    reshard_cost,
)
from partitioner.reshard.steps.all_gather import AllGatherStep
from partitioner.reshard.steps.all_reduce import AllReduceStep
from partitioner.reshard.steps.all_to_all import AllToAllStep
from partitioner.reshard.steps.permute import PermuteStep
from partitioner.reshard.steps.reduce_scatter import ReduceScatterStep
from partitioner.reshard.steps.slice_step import SliceStep
from spmd.device import ReductionKind
from spmd.errors import ShardingError
from spmd.shape import ArrayShape, PrimitiveType
from tests.paths import ROOT

F32 = PrimitiveType.F32
SUM = ReductionKind.SUM


def state(*dims: tuple[int, ...], partial: tuple[int, ...] = ()) -> ShardState:
    return ShardState(dims, partial, SUM if partial else None)


@pytest.mark.parametrize(
    ("source", "target", "steps"),
    [
        (state((0,), ()), state((0,), ()), ()),
        (state((), ()), state((0,), (1,)), (SliceStep(((0,), (1,))),)),
        (state((0, 1), ()), state((0,), ()), (AllGatherStep(0, 1),)),
        (state((0, 1), ()), state((), ()), (AllGatherStep(0, 2),)),
        (state((0,), ()), state((), (0,)), (AllToAllStep(((0,), ()), ((), (0,))),)),
        (state((0, 1), ()), state((), (1, 0)), (AllToAllStep(((0, 1), ()), ((), (1, 0))),)),
        (state((0, 1), ()), state((1, 0), ()), (PermuteStep(((1, 0), ())),)),
        (state((0,), (1,)), state((1,), (0,)), (PermuteStep(((1,), (0,))),)),
        (state((), (), partial=(0,)), state((), ()), (AllReduceStep((0,)),)),
        (state((), (), partial=(0, 1)), state((), ()), (AllReduceStep((0, 1)),)),
        (state((), (), partial=(0,)), state((0,), ()), (ReduceScatterStep(0, (0,)),)),
        (state((1,), (), partial=(0,)), state((1, 0), ()), (ReduceScatterStep(0, (0,)),)),
        (state((), (), partial=(0, 1)), state((), (), partial=(1,)), (AllReduceStep((0,)),)),
        # A small tile travels more cheaply: cut first, then exchange.
        (
            state((0,), ()),
            state((1,), (0,)),
            (SliceStep(((), (1,))), PermuteStep(((1,), (0,)))),
        ),
    ],
)
def test_known_plans(source: ShardState, target: ShardState, steps: tuple[object, ...]) -> None:
    assert plan_reshard(DeviceAxes((2, 2)), ArrayShape(F32, (64, 64)), source, target) == steps


def test_two_dimensions_into_a_third_is_one_exchange() -> None:
    """[2,1,4] to [1,8,1] tiles."""
    steps = plan_reshard(
        DeviceAxes((2, 4)),
        ArrayShape(F32, (64, 64, 64)),
        state((0,), (), (1,)),
        state((), (0, 1), ()),
    )
    assert steps == (AllToAllStep(((0,), (), (1,)), ((), (0, 1), ())),)


def test_scalars() -> None:
    axes, scalar = DeviceAxes((2, 2)), ArrayShape(F32, ())
    assert plan_reshard(axes, scalar, state(partial=(0, 1)), state()) == (AllReduceStep((0, 1)),)


def test_the_order_of_partial_axes_has_no_meaning() -> None:
    axes, shape = DeviceAxes((2, 2)), ArrayShape(F32, (8,))
    assert plan_reshard(axes, shape, state((), partial=(0, 1)), state((), partial=(1, 0))) == ()


def test_costs() -> None:
    axes, shape = DeviceAxes((2, 2)), ArrayShape(F32, (1024, 1024))
    free = reshard_cost(axes, shape, state((), ()), state((0,), (1,)))
    exchange = reshard_cost(axes, shape, state((0,), ()), state((), (0,)))
    gather = reshard_cost(axes, shape, state((0,), ()), state((), ()))
    assert reshard_cost(axes, shape, state((0,), ()), state((0,), ())) == 0
    assert 0 < free < 0.01 * exchange
    assert exchange < gather
    assert (
        reshard_cost(
            axes, ArrayShape(PrimitiveType.F64, (1024, 512)), state((0,), ()), state((), ())
        )
        == gather
    )


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (state(()), state((), ()), "dimensions"),
        (state((0,)), state((0, 0)), "twice"),
        (state((0,), partial=(0,)), state(()), "twice"),
        (state((2,)), state(()), "twice"),
        (state(()), state((), partial=(0,)), "partial"),
        (state((), partial=(0,)), ShardState(((),), (0,), ReductionKind.MAX), "reductions differ"),
        (ShardState(((),), (0,)), state(()), "no reduction"),
    ],
)
def test_refusals(source: ShardState, target: ShardState, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        plan_reshard(DeviceAxes((2, 2)), ArrayShape(F32, (8,)), source, target)


def test_plans_are_remembered() -> None:
    axes, source, target = DeviceAxes((2, 2)), state((0,), ()), state((), (0,))
    first = best_plan(axes, ArrayShape(F32, (48, 80)), source, target)
    assert best_plan(axes, ArrayShape(PrimitiveType.S32, (48, 80)), source, target) is first


def random_state(
    choose: random.Random, axes: int, rank: int, *, may_be_partial: bool
) -> ShardState:
    dims: list[tuple[int, ...]] = [()] * rank
    partial: tuple[int, ...] = ()
    for axis in choose.sample(range(axes), axes):
        home = choose.randrange(-2, rank)
        if home >= 0:
            dims[home] += (axis,)
        elif home == -2 and may_be_partial:
            partial += (axis,)
    return ShardState(tuple(dims), partial, SUM if partial else None)


def test_many_axes_stay_within_the_limit() -> None:
    """Six axes over four dimensions: far too many states to visit, yet a plan comes and leads to the target."""
    axes, shape = DeviceAxes((2,) * 6), ArrayShape(F32, (256, 256, 256, 256))
    choose = random.Random(4)
    longest = 2 * MAX_TRIED + 2 * MAX_TRIED_FINER + 1000  # the last state's steps are all tried
    assert HEURISTIC_WEIGHT > 1
    for _ in range(8):
        source = random_state(choose, 6, 4, may_be_partial=True)
        target = random_state(choose, 6, 4, may_be_partial=False)
        plan = best_plan(axes, shape, source, target)
        assert plan.tried <= longest
        reached = source
        for step in plan.steps:
            reached = step.apply(reached)
        assert reached == target


SCRIPT = """
import random
from partitioner.devices.axes import DeviceAxes
from partitioner.reshard.search import plan_reshard
from partitioner.partition.shard_state import ShardState
from spmd.shape import ArrayShape, PrimitiveType
choose = random.Random(8)
axes, shape = DeviceAxes((2, 2, 4)), ArrayShape(PrimitiveType.F32, (96, 90, 64))
for _ in range(40):
    states = []
    for _ in range(2):
        dims = [(), (), ()]
        for axis in choose.sample(range(3), 3):
            home = choose.randrange(-1, 3)
            if home >= 0:
                dims[home] += (axis,)
        states.append(ShardState(tuple(dims)))
    print(plan_reshard(axes, shape, *states))
"""


def test_the_same_plans_whatever_the_hash_seed() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert "Permute" in outputs[0]
