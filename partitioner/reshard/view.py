"""Views of a reshard in which more steps are possible; the steps in a view form one step of the plan.

Plain states cannot express three things: that only part of an axis moves (an axis of 4 replaces one of 2), that a
middle digit of a dimension is split while a more major one is not, and that uneven tiles are those of a larger
dimension, which line up.

    axes (4, 2), f32[16]: ((1,),) -> ((0,),)        on axes (2, 2, 2): ((2,),) -> ((0, 1),)
    seen as f32[2,2,4]: ((2,), (), ()) -> ((0,), (1,), ())      slice (1), then permute halves of tiles
    axes (2, 2), f32[9]: ((0,),) -> ((0, 1),)       seen as f32[12]: tiles of 5 become tiles of 6, slice (1)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.devices.coordinate import device_coordinate
from partitioner.partition.shard_state import ShardState, tile_size
from partitioner.reshard.emit import emit_steps
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.step import ReshardContext, ReshardStep
from partitioner.reshard.tile_overlap import prime_sub_axes
from partitioner.reshard.tile_size_change import TileSizeChange
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.builder import Builder
    from spmd.hlo.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class View:
    """A reshard problem and its source state, on finer axes over the same devices and on sizes that split the
    dimensions.

    ``enter`` and ``leave`` move the edges of uneven tiles before and after.
    V1 between ``enter`` and ``leave``, local arrays hold the same elements in the same order in both views, in the
       source and in the target state
    """

    problem: ReshardProblem
    source: ShardState
    enter: tuple[TileSizeChange, ...] = ()
    leave: tuple[TileSizeChange, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewedSteps(ReshardStep):
    """All ``steps`` of a plan in a view, as one step to ``target``."""

    view: View
    steps: tuple[ReshardStep, ...]
    target: ShardState

    @property
    def collectives(self) -> int:
        return self.exchanges + sum(step.collectives for step in self.steps)

    @property
    def exchanges(self) -> int:
        """The number of collectives that move the edges of tiles."""
        return sum(change.is_exchange for change in (*self.view.enter, *self.view.leave))

    def apply(self, state: ShardState) -> ShardState:
        return self.target

    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        problem = self.view.problem
        seen = ArrayShape(shape.element_type, problem.dims)
        total, finer = self.exchanged_bytes(axes, shape, state), self.view.source
        for step in self.steps:
            total += step.wire_bytes(problem.axes, seen, finer)
            finer = step.apply(finer)
        return total

    def exchanged_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        """Return the bytes that a device sends to move the edges of tiles."""
        elements = 0
        local = state.local_dims(shape.dims, axes)
        for change in self.view.enter:
            elements += change.sent_elements(axes, local)
            local = change.local_dims(local)
        local = self.target.local_dims(shape.dims, axes)
        for change in reversed(self.view.leave):
            local = change.dims_before(local)
            elements += change.sent_elements(axes, local)
        return float(elements * shape.element_type.byte_size)

    def emit(self, context: ReshardContext, value: ShardedValue) -> HloInstruction:
        problem, source = self.view.problem, self.view.source
        b = context.builder
        local = value.hlo
        for change in self.view.enter:
            local = change.emit(context, local)
        local = b.reshape_to(local, source.local_dims(problem.dims, problem.axes))
        shape = ArrayShape(value.shape.element_type, problem.dims)
        seen = type(value)(local, source, shape)
        done = emit_steps(ViewedContext(context, self.view), seen, self.steps)
        after = self.target.local_dims(value.shape.dims, context.axes)
        for change in reversed(self.view.leave):
            after = change.dims_before(after)
        done = b.reshape_to(done, after)
        for change in self.view.leave:
            done = change.emit(context, done)
        return done


class ViewedContext:
    """ReshardContext on the finer axes, which are sub-axes of the same device number."""

    def __init__(self, context: ReshardContext, view: View) -> None:
        self.axes: DeviceAxes = view.problem.axes
        self.builder: Builder = context.builder
        self._context = context

    def coordinate(self, axes: Axes) -> HloInstruction:
        device = self._context.coordinate(self._context.axes.all)
        return device_coordinate(self.builder, self.axes, device, axes)


def views(problem: ReshardProblem, source: ShardState) -> Iterator[View]:
    """Yield the views that differ from the problem itself: uneven dimensions grown, then also finer, then
    only finer.
    """
    grown = _grown(problem, source)
    if grown is not None:
        yield grown
        yield from _finer(grown)
    yield from _finer(View(problem, source))


def _grown(problem: ReshardProblem, source: ShardState) -> View | None:
    """Return the view in which every unevenly split dimension is grown to a size that both splits divide, if the
    nearest neighbours have the missing elements.
    """
    axes, target = problem.axes, problem.target
    dims = list(problem.dims)
    enter: list[TileSizeChange] = []
    leave: list[TileSizeChange] = []
    for dim, (n, current, wanted) in enumerate(zip(dims, source.dims, target.dims, strict=True)):
        shards = math.lcm(axes.count(current), axes.count(wanted))
        size = tile_size(n, shards) * shards
        tiles = [(tile_size(n, axes.count(a)), size // axes.count(a)) for a in (current, wanted)]
        into = TileSizeChange(dim, current, tiles[0][0], tiles[0][1])
        out = TileSizeChange(dim, wanted, tiles[1][1], tiles[1][0])
        if (
            n
            and size != n
            and into.fits_nearest_neighbour(axes)
            and out.fits_nearest_neighbour(axes)
        ):
            dims[dim] = size
            enter.append(into)
            leave.append(out)
    if not enter:
        return None
    return View(replace(problem, dims=tuple(dims)), source, tuple(enter), tuple(leave))


def _finer(view: View) -> Iterator[View]:
    """Yield the view on prime axes, then on prime axes and split dimensions."""
    problem, source = view.problem, view.source
    parts, axes = prime_axes(problem.axes)
    fine_source, fine_target = refined(parts, source), refined(parts, problem.target)
    usable = concatenated(parts, problem.usable)
    if axes != problem.axes:
        finer = ReshardProblem(axes, problem.dims, problem.item_bytes, fine_target, usable)
        yield replace(view, problem=finer, source=fine_source)
    dims: list[int] = []
    have: list[Axes] = []
    want: list[Axes] = []
    for n, current, wanted in zip(problem.dims, fine_source.dims, fine_target.dims, strict=True):
        for size, old, new in split_dimension(axes, n, current, wanted):
            dims.append(size)
            have.append(old)
            want.append(new)
    if len(dims) > len(problem.dims):
        target = ShardState(tuple(want), fine_target.partial, fine_target.reduction)
        finer = ReshardProblem(axes, tuple(dims), problem.item_bytes, target, usable)
        state = ShardState(tuple(have), fine_source.partial, source.reduction)
        yield replace(view, problem=finer, source=state)


def prime_axes(axes: DeviceAxes) -> tuple[tuple[Axes, ...], DeviceAxes]:
    """Return the finer axes of each axis, and all of them."""
    parts: list[Axes] = []
    sizes: list[int] = []
    for axis in axes.all:
        primes = [size for _, _, size in prime_sub_axes(axes, (axis,))]
        parts.append(tuple(range(len(sizes), len(sizes) + len(primes))))
        sizes.extend(primes)
    return tuple(parts), DeviceAxes(tuple(sizes))


def concatenated(parts: tuple[Axes, ...], axes: Axes) -> Axes:
    return tuple(part for axis in axes for part in parts[axis])


def refined(parts: tuple[Axes, ...], state: ShardState) -> ShardState:
    """Return ``state`` on the finer axes."""
    dims: DimAxes = tuple(concatenated(parts, axes) for axes in state.dims)
    return ShardState(dims, concatenated(parts, state.partial), state.reduction)


def split_dimension(
    axes: DeviceAxes, n: int, current: Axes, wanted: Axes
) -> list[tuple[int, Axes, Axes]]:
    """Return the digits of a dimension of size ``n``, major to minor: (size, axes before, axes after).

    There is one digit per axis as long as both states split by the same sizes; the rest of the dimension is the last
    digit. Uneven dimensions are not cut into digits.
    """
    found: list[tuple[int, Axes, Axes]] = []
    if n == 0 or n % axes.count(current) or n % axes.count(wanted):
        return [(n, current, wanted)]
    for position in range(max(len(current), len(wanted))):
        old, new = current[position : position + 1], wanted[position : position + 1]
        size = axes.count(old or new)
        if (old and new and axes.count(new) != size) or n % size:
            break
        found.append((size, old, new))
        n //= size
    return [*found, (n, current[len(found) :], wanted[len(found) :])]
