"""All-gather: join the tiles along the minor axes of one dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from partitioner.devices.axes import DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.step import ReshardContext, ReshardStep
from partitioner.reshard.tiles import trim_to
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.hlo.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class AllGatherStep(ReshardStep):
    """Take the ``count`` most minor axes off dimension ``dim``; afterwards they hold copies.

    axes (2, 4), f32[8,8]: ((0, 1), ()) -> ((0,), ())    all-gather over groups of axis 1
    """

    dim: int
    count: int

    def apply(self, state: ShardState) -> ShardState:
        dim_axes = state.dims[self.dim]
        return state.with_dim(self.dim, dim_axes[: len(dim_axes) - self.count])

    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        members = axes.count(state.dims[self.dim][-self.count :])
        return (members - 1) * float(state.local_shape(shape, axes).byte_size)

    def emit(self, context: ReshardContext, value: ShardedValue) -> HloInstruction:
        axes = value.state.dims[self.dim][-self.count :]
        joined = context.builder.all_gather(value.hlo, context.axes.groups(axes), self.dim)
        result = self.apply(value.state).local_dims(value.shape.dims, context.axes)
        return trim_to(context.builder, joined, result)


def all_gather_edges(problem: ReshardProblem, state: ShardState) -> Iterator[AllGatherStep]:
    """Yield all-gathers of axes that the target lacks, in every length; of the target's own only all axes of a
    dimension at once.
    """
    for dim, dim_axes in enumerate(state.dims):
        unsettled = len(dim_axes) - problem.settled(state, dim)
        for count in range(1, len(dim_axes) + 1):
            if (count <= unsettled or count == len(dim_axes)) and problem.can_join(
                state, dim, count
            ):
                if state.dims[dim] != problem.target.dims[dim]:
                    yield AllGatherStep(dim, count)
