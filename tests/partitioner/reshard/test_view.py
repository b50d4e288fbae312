"""Finer views: plans on parts of axes and digits of dimensions, which coarse states cannot express."""

from __future__ import annotations

import random

import pytest
from reshard_definition import all_states, check_reshard

from partitioner.devices.axes import DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.bound import lower_bound
from partitioner.reshard.cost import plan_wire_bytes
from partitioner.reshard.fallback import fallback_plan
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.search import plan_reshard
from partitioner.reshard.step import ReshardStep
from partitioner.reshard.steps import EDGES
from partitioner.reshard.view import ViewedSteps, prime_axes, split_dimension, views
from spmd.device import ReductionKind
from spmd.shape import ArrayShape, PrimitiveType

F32 = PrimitiveType.F32
SUM = ReductionKind.SUM


def test_prime_axes() -> None:
    parts, axes = prime_axes(DeviceAxes((4, 3, 6)))
    assert axes.sizes == (2, 2, 3, 2, 3)
    assert parts == ((0, 1), (2,), (3, 4))


@pytest.mark.parametrize(
    ("n", "held", "wanted", "digits"),
    [
        (16, (0, 1), (2,), [(2, (0,), (2,)), (2, (1,), ()), (4, (), ())]),
        (12, (0,), (3,), [(12, (0,), (3,))]),  # 2 and 3 in the same place
        (12, (0, 3), (1,), [(2, (0,), (1,)), (3, (3,), ()), (2, (), ())]),
        (9, (0,), (1,), [(9, (0,), (1,))]),
        (5, (), (), [(5, (), ())]),
        (0, (0,), (), [(0, (0,), ())]),
    ],
)
def test_digits_of_a_dimension(
    n: int,
    held: tuple[int, ...],
    wanted: tuple[int, ...],
    digits: list[tuple[int, tuple[int, ...], tuple[int, ...]]],
) -> None:
    assert split_dimension(DeviceAxes((2, 2, 2, 3)), n, held, wanted) == digits


@pytest.mark.parametrize(
    ("sizes", "source", "target", "at_most"),
    [
        # Two axes of different sizes change places.
        ((2, 4), ShardState(((0,), (1,))), ShardState(((1,), (0,))), 1.7),
        # An axis of 4 takes over from an axis of 2.
        ((4, 2), ShardState(((1,), ())), ShardState(((0,), ())), 1.01),
        # The same beside axes that no state names: devices along those hold other values.
        ((2, 4, 3, 2), ShardState(((3,), ())), ShardState(((1,), ())), 1.01),
        # Scattered to the major digit while the minor one is cut already.
        ((2, 2), ShardState(((), ()), (0,), SUM), ShardState(((0, 1), ())), 1.01),
    ],
)
def test_plans_through_finer_views(
    sizes: tuple[int, ...], source: ShardState, target: ShardState, at_most: float
) -> None:
    axes, shape = DeviceAxes(sizes), ArrayShape(F32, (128, 256))
    steps = plan_reshard(axes, shape, source, target)
    assert isinstance(steps[0], ViewedSteps)
    check_reshard(axes, shape, source, target, steps)
    wire = plan_wire_bytes(axes, shape, source, steps)
    assert wire <= at_most * lower_bound(axes, shape, source, target)


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2, 2), (6, 2)])
@pytest.mark.parametrize("dims", [(48, 24), (37, 29)])
def test_random_walks_in_every_view(sizes: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Any steps in a view, not only those of cheapest plans, followed by the way to the target."""
    axes, shape = DeviceAxes(sizes), ArrayShape(F32, dims)
    states = all_states(sizes, 2, partial=True)
    choose = random.Random(11)
    seen = 0
    while seen < 40:
        source, target = choose.sample(states, 2)
        if target.partial:
            continue
        problem = ReshardProblem(axes, shape.dims, 4, target, axes.all)
        for view in views(problem, source):
            steps = random_walk(choose, view.problem, view.source)
            viewed = ViewedSteps(view, steps, target)
            check_reshard(axes, shape, source, target, (viewed,), axes.all)
            seen += 1


@pytest.mark.parametrize(
    ("sizes", "dims", "source", "target", "at_most"),
    [
        # An axis more: tiles of 501 become tiles of 502, which are cut.
        ((2, 2), (1001, 64), ShardState(((0,), ())), ShardState(((0, 1), ())), 600.0),
        # An axis less, and onto another dimension: tiles of 251 stay, tiles of 502 become tiles of 501.
        ((2, 2), (1001, 64), ShardState(((0, 1), ())), ShardState(((0,), (1,))), 65000.0),
        ((2, 2), (1001, 1023), ShardState(((1, 0), ())), ShardState(((1,), (0,))), 520e3),
        # Partial values are moved like others.
        ((2, 2), (1001, 64), ShardState(((0,), ()), (1,), SUM), ShardState(((0, 1), ())), 65000.0),
        # 3 and 2 in the same place.
        ((3, 2), (1000, 64), ShardState(((1,), ())), ShardState(((1, 0), ())), 1100.0),
    ],
)
def test_uneven_tiles_are_moved_by_their_edges(
    sizes: tuple[int, ...],
    dims: tuple[int, ...],
    source: ShardState,
    target: ShardState,
    at_most: float,
) -> None:
    axes, shape = DeviceAxes(sizes), ArrayShape(F32, dims)
    steps = plan_reshard(axes, shape, source, target)
    assert isinstance(steps[0], ViewedSteps)
    check_reshard(axes, shape, source, target, steps)
    assert plan_wire_bytes(axes, shape, source, steps) <= at_most


def test_a_view_counts_its_exchanges() -> None:
    """Tiles of 500 become tiles of 501: shard 1 of 2 gives up its first row of 64 elements."""
    axes, shape = DeviceAxes((2, 3)), ArrayShape(F32, (1000, 64))
    (step,) = plan_reshard(axes, shape, ShardState(((0,), ())), ShardState(((0, 1), ())))
    assert step.collectives == 1
    assert step.wire_bytes(axes, shape, ShardState(((0,), ()))) == 64 * 4


def test_edges_that_are_far_stay() -> None:
    """With tiles of 2 to become tiles of 3, the last of 8 shards would take from beyond its neighbour."""
    axes = DeviceAxes((8, 3))
    problem = ReshardProblem(axes, (9,), 4, ShardState(((0, 1),)), axes.all)
    assert not any(view.enter for view in views(problem, ShardState(((0,),))))


def random_walk(
    choose: random.Random, problem: ReshardProblem, source: ShardState
) -> tuple[ReshardStep, ...]:
    steps: list[ReshardStep] = []
    state = source
    for _ in range(choose.randrange(4)):
        offered = [step for edges in EDGES for step in edges(problem, state)]
        if not offered:
            break
        steps.append(choose.choice(offered))
        state = steps[-1].apply(state)
    return (*steps, *fallback_plan(problem, state))
