"""All-reduce: combine partial values; every member gets the result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.step import ReshardContext, ReshardStep
from spmd.device import ReductionKind
from spmd.errors import ShardingError
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.hlo.instruction import HloInstruction

#: Up to this many axes every subset of them is tried.
MAX_SUBSET_AXES = 3


@dataclass(frozen=True, slots=True)
class AllReduceStep(ReshardStep):
    """Reduce over ``reduced``, some of the partial axes; afterwards they hold copies."""

    reduced: Axes

    def apply(self, state: ShardState) -> ShardState:
        return without_partial_axes(state, self.reduced)

    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        members = axes.count(self.reduced)
        return 2 * (members - 1) / members * float(state.local_shape(shape, axes).byte_size)

    def emit(self, context: ReshardContext, value: ShardedValue) -> HloInstruction:
        groups = context.axes.groups(self.reduced)
        return context.builder.all_reduce(value.hlo, groups, reduction_of(value.state))


def without_partial_axes(state: ShardState, reduced: Axes) -> ShardState:
    """Return ``state`` after reducing over ``reduced``."""
    left = tuple(a for a in state.partial if a not in reduced)
    return ShardState(state.dims, left, state.reduction if left else None)


def reduction_of(state: ShardState) -> ReductionKind:
    if state.reduction is None:
        raise ShardingError(f"{state} is not partial")
    return state.reduction


def all_reduce_edges(problem: ReshardProblem, state: ShardState) -> Iterator[AllReduceStep]:
    removable = problem.removable(state)
    if len(removable) > MAX_SUBSET_AXES:
        yield AllReduceStep(removable)
        return
    for length in range(len(removable), 0, -1):
        for reduced in combinations(removable, length):
            yield AllReduceStep(reduced)
