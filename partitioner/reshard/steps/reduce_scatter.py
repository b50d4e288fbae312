"""Reduce-scatter: combine partial values; each member keeps its part of a dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.problem import ReshardProblem, available_prefix
from partitioner.reshard.step import ReshardContext, ReshardStep
from partitioner.reshard.steps.all_reduce import reduction_of, without_partial_axes
from partitioner.reshard.tiles import pad_to, replaced
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.hlo.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class ReduceScatterStep(ReshardStep):
    """Reduce over ``reduced``, some of the partial axes, and append them to the axes of ``dim``.

    axes (4,), f32[8] partial over 0: ((),) -> ((0,),)    reduce-scatter over all four devices, f32[2] left
    """

    dim: int
    reduced: Axes

    def apply(self, state: ShardState) -> ShardState:
        after = without_partial_axes(state, self.reduced)
        return after.with_dim(self.dim, (*state.dims[self.dim], *self.reduced))

    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        result = self.apply(state).local_shape(shape, axes)
        return (axes.count(self.reduced) - 1) * float(result.byte_size)

    def emit(self, context: ReshardContext, value: ShardedValue) -> HloInstruction:
        b, axes = context.builder, context.axes
        result = self.apply(value.state).local_dims(value.shape.dims, axes)
        padded_dims = replaced(result, self.dim, result[self.dim] * axes.count(self.reduced))
        padded = pad_to(b, value.hlo, padded_dims)
        kind = reduction_of(value.state)
        return b.reduce_scatter(padded, axes.groups(self.reduced), self.dim, kind)


def reduce_scatter_edges(problem: ReshardProblem, state: ShardState) -> Iterator[ReduceScatterStep]:
    """Yield reduce-scatters of axes where and as the target lists them, and of one axis or all of them onto any
    dimension.
    """
    removable = problem.removable(state)
    if not removable:
        return
    for dim in range(state.rank):
        wanted = available_prefix(problem.missing(state, dim), removable)
        runs = [wanted[:n] for n in range(len(wanted), 0, -1)]
        if problem.dims[dim] > 1:
            # A dimension of size 1 would be all padding: it is split only if the target wants it.
            others = [removable, *((axis,) for axis in removable)]
            runs += [run for run in dict.fromkeys(others) if run not in runs]
        for run in runs:
            if problem.can_split(state, dim, run):
                yield ReduceScatterStep(dim, run)
