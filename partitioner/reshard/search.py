"""Search for the cheapest steps from one state to another."""

from __future__ import annotations

from functools import lru_cache

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.astar import AStar, ReshardSequence
from partitioner.reshard.bound import lower_bound
from partitioner.reshard.cost import LATENCY_BYTES, plan_cost
from partitioner.reshard.fallback import fallback_plan
from partitioner.reshard.problem import ReshardProblem, canonical, check_states
from partitioner.reshard.step import ReshardStep
from partitioner.reshard.view import ViewedSteps, views
from spmd.shape import ArrayShape

#: Number of steps tried before the best known plan is taken: six axes over four ordered dimensions have too many states
#: to visit.
MAX_TRIED = 2500
MAX_TRIED_FINER = 1000
#: Weight of the estimated remaining cost in a second search (weighted A*), if the first one found no path.
HEURISTIC_WEIGHT = 3.0

#: Finer views are searched too if a plan costs this many times the bound, plus this many bytes.
FINER_SEARCH_RATIO = 1.2
FINER_SEARCH_BYTES = 4096.0
#: Factor by which a finer plan must be cheaper: it reshapes and transposes more.
MIN_FINER_GAIN = 1.1

#: Number of cached plans.
CACHE_SIZE = 65536


def plan_reshard(
    axes: DeviceAxes, shape: ArrayShape, source: ShardState, target: ShardState
) -> tuple[ReshardStep, ...]:
    """Return the cheapest steps that take a value of global ``shape`` from ``source`` to ``target``; () if they are
    equal.

    Steps involve the axes that the states name: along others the value may differ (manual axes). The target may be
    partial only over axes of the source's, with the same reduction; otherwise raises ShardingError.
    """
    return best_plan(axes, shape, source, target).steps


def reshard_cost(
    axes: DeviceAxes, shape: ArrayShape, source: ShardState, target: ShardState
) -> float:
    """Return the cost of ``plan_reshard``: bytes a device sends, plus a little per collective and per byte copied
    locally.
    """
    return best_plan(axes, shape, source, target).cost


def best_plan(
    axes: DeviceAxes, shape: ArrayShape, source: ShardState, target: ShardState
) -> ReshardSequence:
    """Return the best plan, cached by axes, sizes, element width and both states."""
    if source == target:
        return _NOTHING
    usable = tuple(sorted({*source.used, *source.partial, *target.used}))
    return _best_plan(axes, shape.dims, shape.element_type.byte_size, source, target, usable)


def clear_plan_cache() -> None:
    """Clear the cache of plans, to measure how long planning takes."""
    _best_plan.cache_clear()


_NOTHING = ReshardSequence((), 0.0, 0)


@lru_cache(maxsize=CACHE_SIZE)
def _best_plan(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    item_bytes: int,
    source: ShardState,
    target: ShardState,
    usable: Axes,
) -> ReshardSequence:
    check_states(axes, len(dims), source, target)
    source, target = canonical(source), canonical(target)
    problem = ReshardProblem(axes, dims, item_bytes, target, usable)
    steps = fallback_plan(problem, source)
    cost = plan_cost(axes, problem.shape, source, steps)
    best = (
        AStar(problem).run(source, cost, MAX_TRIED)
        or AStar(problem).run(source, cost, MAX_TRIED, HEURISTIC_WEIGHT)
        or ReshardSequence(steps, cost, 0)
    )
    bound = lower_bound(axes, problem.shape, source, target, usable)
    threshold = FINER_SEARCH_RATIO * bound + FINER_SEARCH_BYTES
    for view in views(problem, source):
        if best.cost <= threshold:
            break
        limit = best.cost / MIN_FINER_GAIN
        finer = AStar(view.problem).run(view.source, limit, MAX_TRIED_FINER)
        if finer is not None:
            step = ViewedSteps(view, finer.steps, target)
            cost = finer.cost + step.exchanges * LATENCY_BYTES
            cost += step.exchanged_bytes(axes, problem.shape, source)
            if cost < limit:
                best = ReshardSequence((step,), cost, best.tried + finer.tried)
    return best
