"""A* search over the states of one value for the cheapest steps from one to another."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from partitioner.partition.shard_state import ShardState
from partitioner.reshard.bound import bound_elements
from partitioner.reshard.cost import LATENCY_BYTES, LOCAL_COPY, STEP_BYTES, plan_cost, step_cost
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.step import ReshardStep
from partitioner.reshard.steps import EDGES
from partitioner.reshard.steps.slice_step import SliceStep
from spmd.lazy_dataclass import dataclass

#: Number of devices above which the remaining cost may be underestimated for uneven tiles, because a search computes it
#: many times.
MOST_LISTED = 64


@dataclass(frozen=True, slots=True)
class ReshardSequence:
    """Steps and their cost (bytes on the wire; see cost.py). ``tried``: the number of steps examined to find them."""

    steps: tuple[ReshardStep, ...]
    cost: float
    tried: int


class AStar:
    """One search. ``_cost``: the lowest known cost of each state; ``_came``: its last step."""

    def __init__(self, problem: ReshardProblem) -> None:
        self.problem = problem
        self.shape = problem.shape
        target_bytes = problem.target.local_shape(self.shape, problem.axes).byte_size
        self._last_copy = STEP_BYTES + LOCAL_COPY * target_bytes
        self._cost: dict[ShardState, float] = {}
        self._came: dict[ShardState, tuple[ShardState, ReshardStep]] = {}
        self._bound: dict[ShardState, float] = {}

    def run(
        self, source: ShardState, limit: float, max_tried: int, haste: float = 1.0
    ) -> ReshardSequence | None:
        """Return the cheapest plan below ``limit``, or the best known one after ``max_tried`` steps, or None.

        With ``haste`` above 1 the remaining cost counts more than the paid cost: a plan is found sooner, but may cost
        more.
        """
        problem = self.problem
        self._cost[source] = 0.0
        queue: list[tuple[float, float, int, ShardState]] = [(0.0, 0.0, 0, source)]
        pushed = tried = 0
        while queue and tried < max_tried:
            _, known, _, state = heapq.heappop(queue)
            cost = self._cost[state]
            if cost < -known or cost + self._remaining(state) >= limit:
                continue  # a cheaper path was found since, or the state cannot improve the result
            for step, after, reached in self._neighbours(state, cost):
                tried += 1
                remaining = self._remaining(after)
                if reached + remaining >= limit or reached >= self._cost.get(after, limit):
                    continue
                self._cost[after] = reached
                self._came[after] = (state, step)
                if after == problem.target:
                    limit = reached
                    continue
                pushed += 1
                heapq.heappush(queue, (reached + haste * remaining, -reached, pushed, after))
        if problem.target not in self._came:
            return None
        steps = merge_slices(self._reconstruct_path(source))
        return ReshardSequence(steps, plan_cost(problem.axes, self.shape, source, steps), tried)

    def _neighbours(
        self, state: ShardState, cost: float
    ) -> Iterator[tuple[ReshardStep, ShardState, float]]:
        problem = self.problem
        for edges in EDGES:
            for step in edges(problem, state):
                after = step.apply(state)
                yield step, after, cost + step_cost(problem.axes, self.shape, state, step, after)

    def _remaining(self, state: ShardState) -> float:
        """Return a lower bound of the remaining cost: the bytes bound, a start-up, and the last step's result."""
        if state not in self._bound:
            problem = self.problem
            devices = problem.axes.count(problem.usable)
            elements = bound_elements(
                problem.axes, problem.dims, state, problem.target, devices, MOST_LISTED
            )
            # Rounding may leave a fraction of a byte although nothing has to move.
            wire = elements * problem.item_bytes
            left = wire + LATENCY_BYTES if wire > 1e-6 else 0.0
            self._bound[state] = left + self._last_copy if state != problem.target else 0.0
        return self._bound[state]

    def _reconstruct_path(self, source: ShardState) -> tuple[ReshardStep, ...]:
        steps: list[ReshardStep] = []
        state = self.problem.target
        while state != source:
            state, step = self._came[state]
            steps.append(step)
        return tuple(reversed(steps))


def merge_slices(steps: tuple[ReshardStep, ...]) -> tuple[ReshardStep, ...]:
    """Merge adjacent slices."""
    merged: list[ReshardStep] = []
    for step in steps:
        if isinstance(step, SliceStep) and merged and isinstance(merged[-1], SliceStep):
            merged[-1] = merged[-1].then(step)
        else:
            merged.append(step)
    return tuple(merged)
