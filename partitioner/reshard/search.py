"""Find the cheapest steps from one state to another: A* over states."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from partitioner.axes import Axes, DeviceAxes
from partitioner.reshard.bound import bound_elements
from partitioner.reshard.cost import LATENCY_BYTES, plan_cost, step_cost
from partitioner.reshard.fallback import fallback_plan
from partitioner.reshard.problem import ReshardProblem, canonical, check_states
from partitioner.reshard.step import Step
from partitioner.reshard.steps import EDGES
from partitioner.reshard.steps.slice_step import SliceStep
from partitioner.state import ShardState
from spmd.shape import ArrayShape, PrimitiveType

#: States expanded before the best plan known is taken; six axes over four ordered dimensions are too many to visit.
MAX_EXPANDED = 200

#: Plans remembered.
CACHE_SIZE = 65536


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps and their cost (bytes on the wire; see cost.py); ``expanded`` states were looked at to find them."""

    steps: tuple[Step, ...]
    cost: float
    expanded: int


def plan_reshard(
    axes: DeviceAxes,
    shape: ArrayShape,
    source: ShardState,
    target: ShardState,
    scratch: Axes = (),
) -> tuple[Step, ...]:
    """The cheapest steps that take a value of global ``shape`` from ``source`` to ``target``; () when they are equal.

    Steps involve the axes that the states name, and ``scratch``: others along which the value surely holds copies (no
    manual axes), which can help an all-reduce.
    The target may be partial only over axes of the source's, with the same reduction: ShardingError otherwise.
    """
    return best_plan(axes, shape, source, target, scratch).steps


def reshard_cost(
    axes: DeviceAxes,
    shape: ArrayShape,
    source: ShardState,
    target: ShardState,
    scratch: Axes = (),
) -> float:
    """Cost of ``plan_reshard``: bytes a device sends, plus a little per collective and per byte copied locally."""
    return best_plan(axes, shape, source, target, scratch).cost


def best_plan(
    axes: DeviceAxes,
    shape: ArrayShape,
    source: ShardState,
    target: ShardState,
    scratch: Axes = (),
) -> Plan:
    """Remembered by axes, sizes, width of the elements and both states."""
    if source == target:
        return _NOTHING
    named = (*source.used, *source.partial, *target.used, *scratch)
    usable = tuple(sorted(dict.fromkeys(named)))
    return _best_plan(axes, shape.dims, shape.element_type.byte_size, source, target, usable)


_NOTHING = Plan((), 0.0, 0)

#: An element type of each width: costs depend on nothing else.
_WIDTHS = {
    1: PrimitiveType.U8,
    2: PrimitiveType.U16,
    4: PrimitiveType.U32,
    8: PrimitiveType.U64,
    16: PrimitiveType.C128,
}


@lru_cache(maxsize=CACHE_SIZE)
def _best_plan(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    item_bytes: int,
    source: ShardState,
    target: ShardState,
    usable: Axes,
) -> Plan:
    check_states(axes, len(dims), source, target)
    problem = ReshardProblem(axes, dims, item_bytes, canonical(target), usable)
    return _Search(problem).run(canonical(source))


class _Search:
    """One A* run. ``_cost`` is the cheapest way known to each state, ``_came`` its last step."""

    def __init__(self, problem: ReshardProblem) -> None:
        self.problem = problem
        self.shape = ArrayShape(_WIDTHS[problem.item_bytes], problem.dims)
        self._cost: dict[ShardState, float] = {}
        self._came: dict[ShardState, tuple[ShardState, Step]] = {}
        self._bound: dict[ShardState, float] = {}

    def run(self, source: ShardState) -> Plan:
        """Cheapest plan, or the cheapest known once MAX_EXPANDED states were looked at."""
        problem = self.problem
        steps = fallback_plan(problem, source)
        limit = plan_cost(problem.axes, self.shape, source, steps)
        self._cost[source] = 0.0
        queue: list[tuple[float, float, int, ShardState]] = [(0.0, 0.0, 0, source)]
        pushed = expanded = 0
        while queue and expanded < MAX_EXPANDED:
            estimate, _, _, state = heapq.heappop(queue)
            if estimate >= limit:
                break
            cost = self._cost[state]
            if estimate > cost + self._remaining(state):
                continue  # reached more cheaply since
            expanded += 1
            for step, after, reached in self._neighbours(state, cost):
                estimate = reached + self._remaining(after)
                if estimate >= limit or reached >= self._cost.get(after, limit):
                    continue
                self._cost[after] = reached
                self._came[after] = (state, step)
                if after == problem.target:
                    limit = reached
                    continue
                pushed += 1
                heapq.heappush(queue, (estimate, -reached, pushed, after))
        if problem.target in self._came:
            steps = self._walk_back(source)
        steps = merge_slices(steps)
        return Plan(steps, plan_cost(problem.axes, self.shape, source, steps), expanded)

    def _neighbours(
        self, state: ShardState, cost: float
    ) -> Iterator[tuple[Step, ShardState, float]]:
        problem = self.problem
        for edges in EDGES:
            for step in edges(problem, state):
                after = step.apply(state)
                yield step, after, cost + step_cost(problem.axes, self.shape, state, step, after)

    def _remaining(self, state: ShardState) -> float:
        """At most what is left to pay."""
        if state not in self._bound:
            problem = self.problem
            devices = problem.axes.count(problem.usable)
            elements = bound_elements(problem.axes, problem.dims, state, problem.target, devices)
            # Rounding may leave a crumb of a byte where nothing has to move.
            wire = elements * problem.item_bytes
            self._bound[state] = wire + LATENCY_BYTES if wire > 1e-6 else 0.0
        return self._bound[state]

    def _walk_back(self, source: ShardState) -> tuple[Step, ...]:
        steps: list[Step] = []
        state = self.problem.target
        while state != source:
            state, step = self._came[state]
            steps.append(step)
        return tuple(reversed(steps))


def merge_slices(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Neighbouring slices as one."""
    merged: list[Step] = []
    for step in steps:
        if isinstance(step, SliceStep) and merged and isinstance(merged[-1], SliceStep):
            merged[-1] = merged[-1].then(step)
        else:
            merged.append(step)
    return tuple(merged)
