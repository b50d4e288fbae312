"""All-to-all: move axes from some dimensions to others in one exchange."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.problem import ReshardProblem, available_prefix
from partitioner.reshard.step import ReshardContext, ReshardStep
from partitioner.reshard.tiles import pad_to, trim_to
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.builder import Builder
    from spmd.hlo.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class AllToAllStep(ReshardStep):
    """Take the minor axes ``removed[d]`` off each dimension d and append ``added[d]``: the same axes elsewhere.

    No dimension both gives and receives. The local array is cut into one chunk per member along the receiving
    dimensions; received chunks are joined along the giving ones.

        axes (2, 4), f32[8,8,8]: ((0,), (), (1,)) -> ((), (0, 1), ())    one exchange among all 8 devices
        local f32[4,8,2] -> [4,8,1,2] -> all-to-all dim 1 -> [4,2,4,1,2] -> transpose [2,4,1,4,2] -> f32[8,1,8]
    """

    removed: DimAxes
    added: DimAxes

    @property
    def moved(self) -> Axes:
        """The exchanged axes in group order: as the receiving dimensions list them."""
        return tuple(a for axes in self.added for a in axes)

    def apply(self, state: ShardState) -> ShardState:
        dims = tuple(
            (*have[: len(have) - len(out)], *new)
            for have, out, new in zip(state.dims, self.removed, self.added, strict=True)
        )
        return ShardState(dims, state.partial, state.reduction)

    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        members = axes.count(self.moved)
        exchanged = math.prod(self._padded(axes, shape, state)) * shape.element_type.byte_size
        return (members - 1) / members * float(exchanged)

    def _padded(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> tuple[int, ...]:
        """Return the local sizes with the receiving dimensions grown to a multiple of the chunks."""
        before = state.local_dims(shape.dims, axes)
        after = self.apply(state).local_dims(shape.dims, axes)
        return tuple(
            new * axes.count(came) if came else old
            for old, new, came in zip(before, after, self.added, strict=True)
        )

    def emit(self, context: ReshardContext, value: ShardedValue) -> HloInstruction:
        b, axes = context.builder, context.axes
        sizes = self._padded(axes, value.shape, value.state)
        x = pad_to(b, value.hlo, sizes)
        x, at = self._split_chunks(b, axes, x)
        x = b.all_to_all(x, axes.partition_groups(self.moved), at)
        x = self._join_chunks(b, axes, x, at)
        return trim_to(b, x, self.apply(value.state).local_dims(value.shape.dims, axes))

    def _split_chunks(
        self, b: Builder, axes: DeviceAxes, x: HloInstruction
    ) -> tuple[HloInstruction, int]:
        """Add a dimension that counts the chunks in group order. Returns the array and the position of that
        dimension.
        """
        dims: list[int] = []
        chunk_dims: list[int] = []
        for size, came in zip(x.dims, self.added, strict=True):
            if came:
                chunk_dims.append(len(dims))
                dims.append(axes.count(came))
                size //= axes.count(came)
            dims.append(size)
        x = b.reshape_to(x, dims)
        if len(chunk_dims) == 1:
            return x, chunk_dims[0]
        rest = [d for d in range(len(dims)) if d not in chunk_dims]
        x = b.transpose_by(x, (*chunk_dims, *rest))
        return b.reshape_to(x, (axes.count(self.moved), *(dims[d] for d in rest))), 0

    def _join_chunks(
        self, b: Builder, axes: DeviceAxes, x: HloInstruction, at: int
    ) -> HloInstruction:
        """Spread the chunk dimension, which now counts senders, over the giving dimensions."""
        runs = self._sender_runs()
        position = {run: at + i for i, run in enumerate(runs)}
        sizes = tuple(axes.count(run) for run in runs)
        x = b.reshape_to(x, (*x.dims[:at], *sizes, *x.dims[at + 1 :]))
        own = [d for d in range(len(x.dims)) if not at <= d < at + len(runs)]
        order: list[int] = []
        joined: list[int] = []
        for d, gone in zip(own, self.removed, strict=True):
            parts = [position[run] for run in runs_of(gone, runs)] if gone else []
            order.extend((*parts, d))
            joined.append(math.prod(x.dims[p] for p in (*parts, d)))
        return b.reshape_to(b.transpose_by(x, order), joined)

    def _sender_runs(self) -> tuple[Axes, ...]:
        """Return the group's axes cut into runs that stay neighbours in the giving dimensions."""
        follows = {a: b for axes in self.removed for a, b in pairwise(axes)}
        runs: list[list[int]] = []
        for axis in self.moved:
            if runs and follows.get(runs[-1][-1]) == axis:
                runs[-1].append(axis)
            else:
                runs.append([axis])
        return tuple(tuple(run) for run in runs)


def runs_of(axes: Axes, runs: tuple[Axes, ...]) -> Iterator[Axes]:
    """Yield the runs that make up ``axes``, in its order."""
    starts = {run[0]: run for run in runs}
    position = 0
    while position < len(axes):
        run = starts[axes[position]]
        yield run
        position += len(run)


def all_to_all_edges(problem: ReshardProblem, state: ShardState) -> Iterator[AllToAllStep]:
    yield from _towards_target(problem, state)
    yield from _pairs(problem, state)


def _towards_target(problem: ReshardProblem, state: ShardState) -> Iterator[AllToAllStep]:
    """Yield exchanges in which a set of dimensions gives up all axes that the target lacks there, to where the target
    wants them.
    """
    unsettled = tuple(
        dim_axes[problem.settled(state, d) :] for d, dim_axes in enumerate(state.dims)
    )
    giving = [d for d, axes in enumerate(unsettled) if axes]
    for count in range(len(giving), 0, -1):
        for chosen in combinations(giving, count):
            removed = tuple(a if d in chosen else () for d, a in enumerate(unsettled))
            step = _exchange(problem, state, removed)
            if step is not None and _lines_up(problem, state, step):
                yield step


def _exchange(problem: ReshardProblem, state: ShardState, removed: DimAxes) -> AllToAllStep | None:
    """Return the exchange that puts each axis of ``removed`` where the target continues with it; axes not wanted yet
    follow the last of these.

    Returns None if the target continues with none of them.
    """
    moved = tuple(a for axes in removed for a in axes)
    added: list[Axes] = [
        () if removed[d] else available_prefix(problem.missing(state, d), moved)
        for d in range(state.rank)
    ]
    placed = [a for axes in added for a in axes]
    if not placed:
        return None
    last = max(d for d, axes in enumerate(added) if axes)
    added[last] += tuple(a for a in moved if a not in placed)
    return AllToAllStep(removed, tuple(added))


def _pairs(problem: ReshardProblem, state: ShardState) -> Iterator[AllToAllStep]:
    """Yield exchanges of minor axes of one dimension to the minor end of another."""
    for source, dim_axes in enumerate(state.dims):
        unsettled = len(dim_axes) - problem.settled(state, source)
        for count in range(1, unsettled + 1):
            moved = dim_axes[len(dim_axes) - count :]
            for to in range(state.rank):
                if to == source or problem.dims[to] <= 1:
                    continue
                first = available_prefix(problem.missing(state, to), moved)
                arriving = (*first, *(a for a in moved if a not in first))
                step = AllToAllStep(
                    tuple(moved if d == source else () for d in range(state.rank)),
                    tuple(arriving if d == to else () for d in range(state.rank)),
                )
                if _lines_up(problem, state, step):
                    yield step


def _lines_up(problem: ReshardProblem, state: ShardState, step: AllToAllStep) -> bool:
    return all(
        (not out or problem.can_join(state, d, len(out)))
        and (not new or problem.can_split(state, d, new))
        for d, (out, new) in enumerate(zip(step.removed, step.added, strict=True))
    )
