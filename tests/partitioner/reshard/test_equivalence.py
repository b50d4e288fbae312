"""Plans move the right elements: every device ends up with its tile, whatever the padding held."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reshard_definition import all_states, check_reshard

from partitioner.devices.axes import DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.fallback import fallback_plan
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.search import plan_reshard
from spmd.device import ReductionKind
from spmd.shape import ArrayShape, PrimitiveType

F32 = PrimitiveType.F32
MESHES = [(2, 2), (4, 2), (2, 3), (2, 2, 2), (3,), (2, 4)]


def pairs(sizes: tuple[int, ...], rank: int) -> list[tuple[ShardState, ShardState]]:
    """Every source, partial ones too, with every target that it may become."""
    states = all_states(sizes, rank, partial=True)
    return [
        (source, target)
        for source, target in itertools.product(states, states)
        if all(a in source.partial for a in target.partial)
    ]


@pytest.mark.parametrize("dims", [(8,), (5,), (1,), (3,), (0,)])
@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2), (2, 3)])
def test_every_pair_of_states_of_a_vector(sizes: tuple[int, ...], dims: tuple[int, ...]) -> None:
    axes, shape = DeviceAxes(sizes), ArrayShape(F32, dims)
    for source, target in pairs(sizes, 1):
        check_reshard(axes, shape, source, target, plan_reshard(axes, shape, source, target))


@pytest.mark.parametrize("dims", [(8, 4), (5, 7), (4, 3), (2, 9)])
def test_every_pair_of_states_of_a_matrix(dims: tuple[int, ...]) -> None:
    axes, shape = DeviceAxes((2, 2)), ArrayShape(F32, dims)
    for source, target in pairs((2, 2), 2):
        check_reshard(axes, shape, source, target, plan_reshard(axes, shape, source, target))


@pytest.mark.parametrize("sizes", [(2, 2, 2), (4, 2), (2, 3)])
def test_a_sample_of_pairs_on_larger_arrays(sizes: tuple[int, ...]) -> None:
    """Large enough that bytes, not start-up costs, decide; and once each with sizes that divide and that do not."""
    axes = DeviceAxes(sizes)
    chosen = random.Random(3).sample(pairs(sizes, 3), 60)
    for source, target in chosen:
        for dims in [(24, 16, 48), (13, 24, 17)]:
            shape = ArrayShape(F32, dims)
            check_reshard(axes, shape, source, target, plan_reshard(axes, shape, source, target))


@st.composite
def problems(draw: st.DrawFn) -> tuple[DeviceAxes, ArrayShape, ShardState, ShardState]:
    sizes = draw(st.sampled_from(MESHES))
    rank = draw(st.integers(0, 4))
    dims = tuple(draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 0])) for _ in range(rank))
    source = draw(states(sizes, rank, range(len(sizes))))
    target = draw(states(sizes, rank, source.partial))
    return DeviceAxes(sizes), ArrayShape(F32, dims), source, target


@st.composite
def states(
    draw: st.DrawFn, sizes: tuple[int, ...], rank: int, may_be_partial: tuple[int, ...]
) -> ShardState:
    dims: list[tuple[int, ...]] = [()] * rank
    partial: tuple[int, ...] = ()
    for axis in draw(st.permutations(range(len(sizes)))):
        home = draw(st.integers(-2, rank - 1))
        if home >= 0:
            dims[home] += (axis,)
        elif home == -2 and axis in may_be_partial:
            partial += (axis,)
    return ShardState(tuple(dims), partial, ReductionKind.SUM if partial else None)


@settings(max_examples=300)
@given(problems())
def test_random_plans(problem: tuple[DeviceAxes, ArrayShape, ShardState, ShardState]) -> None:
    axes, shape, source, target = problem
    check_reshard(axes, shape, source, target, plan_reshard(axes, shape, source, target))


@settings(max_examples=100)
@given(problems())
def test_random_fallbacks(problem: tuple[DeviceAxes, ArrayShape, ShardState, ShardState]) -> None:
    axes, shape, source, target = problem
    steps = fallback_plan(ReshardProblem(axes, shape.dims, 4, target, axes.all), source)
    check_reshard(axes, shape, source, target, steps)


def enlarged(shape: ArrayShape) -> ArrayShape:
    """Large enough for bytes to outweigh start-up costs where possible, small enough to run often."""
    dims = list(shape.dims)
    for d, n in enumerate(dims):
        if math.prod(dims) * 12 <= 30_000:
            dims[d] = n * 12
    return ArrayShape(shape.element_type, tuple(dims))


@settings(max_examples=100)
@given(problems())
def test_random_plans_of_larger_arrays(
    problem: tuple[DeviceAxes, ArrayShape, ShardState, ShardState],
) -> None:
    axes, shape, source, target = problem
    large = enlarged(shape)
    check_reshard(axes, large, source, target, plan_reshard(axes, large, source, target))


KINDS = [
    *(
        (kind, dtype)
        for kind in ("SUM", "PRODUCT", "MIN", "MAX")
        for dtype in ("F32", "BF16", "S32")
    ),
    ("SUM", "C64"),
    ("SUM", "F8E4M3FN"),
    *((kind, dtype) for kind in ("AND", "OR", "XOR") for dtype in ("PRED", "U8")),
]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_reductions(kind: str, dtype: str) -> None:
    axes, shape = DeviceAxes((2, 2)), ArrayShape(PrimitiveType[dtype], (6, 5))
    source = ShardState(((), ()), (0, 1), ReductionKind[kind])
    targets = [
        ShardState.replicated(2),
        ShardState(((0, 1), ())),
        ShardState(((), (1,))),
        ShardState(((1,), ()), (0,), ReductionKind[kind]),
    ]
    for target in targets:
        check_reshard(axes, shape, source, target, plan_reshard(axes, shape, source, target))


@pytest.mark.parametrize(
    ("sizes", "source", "target"),
    [
        ((3, 2, 3), ShardState(((0,), ())), ShardState(((2,), ()))),
        ((3, 2, 3), ShardState(((0,), (2,))), ShardState(((2,), (0,)))),
        ((4, 2), ShardState(((), ()), (0,), ReductionKind.SUM), ShardState.replicated(2)),
    ],
)
def test_axes_that_no_state_names_stay_apart(
    sizes: tuple[int, ...], source: ShardState, target: ShardState
) -> None:
    """In a manual region the devices along a manual axis hold different values (check_reshard gives them such)."""
    axes, shape = DeviceAxes(sizes), ArrayShape(F32, (36, 60))
    check_reshard(axes, shape, source, target, plan_reshard(axes, shape, source, target))
