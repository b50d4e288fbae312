"""Plan that always exists: reduce, gather the dimensions that differ, slice."""

from __future__ import annotations

from partitioner.partition.shard_state import ShardState
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.step import ReshardStep
from partitioner.reshard.steps.all_gather import AllGatherStep
from partitioner.reshard.steps.all_reduce import AllReduceStep
from partitioner.reshard.steps.slice_step import SliceStep


def fallback_plan(problem: ReshardProblem, source: ShardState) -> tuple[ReshardStep, ...]:
    """All-reduce the partial axes, gather every dimension that differs, slice it anew.

    This is legal for every pair of states: a dimension that no axis splits lines up with any split.
    """
    steps: list[ReshardStep] = []
    removable = problem.removable(source)
    if removable:
        steps.append(AllReduceStep(removable))
    differs = [have != want for have, want in zip(source.dims, problem.target.dims, strict=True)]
    for dim, axes in enumerate(source.dims):
        if differs[dim] and axes:
            steps.append(AllGatherStep(dim, len(axes)))
    added = tuple(
        want if differ else () for want, differ in zip(problem.target.dims, differs, strict=True)
    )
    if any(added):
        steps.append(SliceStep(added))
    return tuple(steps)
