"""Slice: every device keeps its part of a dimension along axes that held copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.problem import ReshardProblem, available_prefix
from partitioner.reshard.step import ReshardContext, ReshardStep
from partitioner.reshard.tiles import pad_to
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, PrimitiveType

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.builder import Builder
    from spmd.hlo.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class SliceStep(ReshardStep):
    """Append ``added[d]`` to the axes of each dimension d, without communication.

    axes (2, 2), f32[8]: ((),) -> ((0, 1),)    dynamic-slice(x, partition coordinate * 2), sizes {2}
    """

    added: DimAxes

    @property
    def collectives(self) -> int:
        return 0

    def apply(self, state: ShardState) -> ShardState:
        dims = tuple((*have, *new) for have, new in zip(state.dims, self.added, strict=True))
        return ShardState(dims, state.partial, state.reduction)

    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        return 0.0

    def emit(self, context: ReshardContext, value: ShardedValue) -> HloInstruction:
        b = context.builder
        tile = self.apply(value.state).local_dims(value.shape.dims, context.axes)
        parts = tuple(context.axes.count(new) for new in self.added)
        padded_dims = tuple(n * k if k > 1 else n for n, k in zip(tile, parts, strict=True))
        starts = [
            scaled(b, context.coordinate(new), n) if new else b.scalar(PrimitiveType.S32, 0)
            for n, new in zip(tile, self.added, strict=True)
        ]
        return b.dynamic_slice(pad_to(b, value.hlo, padded_dims), starts, tile)

    def then(self, other: SliceStep) -> SliceStep:
        """Return both cuts as one step: lining up carries over."""
        return SliceStep(tuple((*a, *b) for a, b in zip(self.added, other.added, strict=True)))


def scaled(b: Builder, index: HloInstruction, size: int) -> HloInstruction:
    return index if size == 1 else b.multiply(index, b.scalar(PrimitiveType.S32, size))


def slice_one(rank: int, dim: int, added: Axes) -> SliceStep:
    return SliceStep(tuple(added if d == dim else () for d in range(rank)))


def slice_edges(problem: ReshardProblem, state: ShardState) -> Iterator[SliceStep]:
    """Yield slices by every axis that holds copies, onto any dimension (small tiles cost less to send), and by several
    as the target has them.
    """
    free = problem.free(state)
    if not free:
        return
    for dim in range(state.rank):
        wanted = available_prefix(problem.missing(state, dim), free)
        runs = [wanted[:n] for n in range(1, len(wanted) + 1)]
        if problem.dims[dim] > 1:
            # A dimension of size 1 would be all padding: it is split only if the target wants it.
            runs += [(axis,) for axis in free if (axis,) not in runs]
        for run in runs:
            if problem.can_split(state, dim, run):
                yield slice_one(state.rank, dim, run)
