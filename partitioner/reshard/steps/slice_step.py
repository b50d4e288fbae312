"""Slice: every device keeps its part of a dimension along axes that held copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from partitioner.axes import Axes, DeviceAxes, DimAxes
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.step import Step, StepContext
from partitioner.reshard.tiles import pad_to
from partitioner.state import ShardState
from spmd.shape import ArrayShape, PrimitiveType

if TYPE_CHECKING:
    from partitioner.context import ShardedValue
    from spmd.hlo.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class SliceStep(Step):
    """Append ``added[d]`` to the axes of each dimension d. Free of communication.

    axes (2, 2), f32[8]: ((),) -> ((0, 1),)    dynamic-slice(x, partition coordinate * 2), sizes {2}
    """

    added: DimAxes
    is_collective: ClassVar[bool] = False

    def apply(self, state: ShardState) -> ShardState:
        dims = tuple((*have, *new) for have, new in zip(state.dims, self.added, strict=True))
        return ShardState(dims, state.partial, state.reduction)

    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        return 0.0

    def emit(self, context: StepContext, value: ShardedValue) -> HloInstruction:
        b = context.builder
        tile = self.apply(value.state).local_dims(value.shape.dims, context.axes)
        parts = tuple(context.axes.count(new) for new in self.added)
        whole = tuple(n * k if k > 1 else n for n, k in zip(tile, parts, strict=True))
        starts = [
            b.multiply(context.coordinate(new), b.scalar(PrimitiveType.S32, n))
            if new
            else b.scalar(PrimitiveType.S32, 0)
            for n, new in zip(tile, self.added, strict=True)
        ]
        return b.dynamic_slice(pad_to(b, value.hlo, whole), starts, tile)

    def then(self, other: SliceStep) -> SliceStep:
        """Both cuts in one: lining up carries over."""
        return SliceStep(tuple((*a, *b) for a, b in zip(self.added, other.added, strict=True)))


def slice_one(rank: int, dim: int, added: Axes) -> SliceStep:
    return SliceStep(tuple(added if d == dim else () for d in range(rank)))


def slice_edges(problem: ReshardProblem, state: ShardState) -> Iterator[SliceStep]:
    """Axes that the target uses: singly onto any dimension (small tiles travel cheaply), or in the target's order.

    Other axes pay only before an all-reduce over more than two devices: 2(k-1)/k times the whole against 2(k-1)/k
    times a part, gathered afterwards.
    """
    free = problem.free(state)
    if not free:
        return
    scratch = problem.axes.count(problem.removable(state)) > 2
    useful = [a for a in free if scratch or a in problem.target.used]
    for dim in range(state.rank):
        if problem.dims[dim] <= 1:
            continue
        for axis in useful:
            if problem.can_split(state, dim, (axis,)):
                yield slice_one(state.rank, dim, (axis,))
    for dim in range(state.rank):
        missing = problem.missing(state, dim)
        for length in range(1, len(missing) + 1):
            if missing[length - 1] not in free:
                break
            # Single axes onto longer dimensions stand above.
            if (length > 1 or problem.dims[dim] <= 1) and problem.can_split(
                state, dim, missing[:length]
            ):
                yield slice_one(state.rank, dim, missing[:length])
