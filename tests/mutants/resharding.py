"""Planted bugs in resharding: groups, orders, offsets, kinds."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.context import PartitionContext
from partitioner.reshard import tiles
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.steps import all_reduce, permute
from partitioner.reshard.steps.all_gather import AllGatherStep
from partitioner.reshard.steps.all_reduce import AllReduceStep
from partitioner.reshard.steps.all_to_all import AllToAllStep
from partitioner.reshard.steps.reduce_scatter import ReduceScatterStep
from partitioner.reshard.steps.slice_step import SliceStep
from spmd.device import ReductionKind
from spmd.source_target_pairs import ListedPairs
from tests.mutants.patching import function, method, mutant


class _OtherAxes(DeviceAxes):
    """The same axes with groups of its own."""

    def partition_groups(self, axes: Axes) -> Any:
        return DeviceAxes.partition_groups(self, tuple(reversed(axes)))


def _with_groups_reversed(step: type) -> AbstractContextManager[None]:
    """``step`` emitted with the axes of its groups in the wrong order."""
    original = step.__dict__["emit"]

    def emit(self: Any, context: Any, value: Any) -> Any:
        right = context.axes
        context.axes = _OtherAxes(right.sizes, right.replicas)
        try:
            return original(self, context, value)
        finally:
            context.axes = right

    return method(step, "emit", emit)


@mutant("all-gather joins the tiles of a dimension with two axes in minor-major order")
def all_gather_order() -> AbstractContextManager[None]:
    return _with_groups_reversed(AllGatherStep)


@mutant("all-to-all exchanges among members in minor-major order", first=13)
def all_to_all_order() -> AbstractContextManager[None]:
    return _with_groups_reversed(AllToAllStep)


@mutant("reduce-scatter hands the parts to members in minor-major order", "dot", first=9)
def reduce_scatter_order() -> AbstractContextManager[None]:
    return _with_groups_reversed(ReduceScatterStep)


@mutant("collectives run over the axes that they should not touch", first=8)
def groups_of_the_other_axes() -> AbstractContextManager[None]:
    original = DeviceAxes.groups

    def groups(self: DeviceAxes, axes: Axes) -> Any:
        rest = self.spread(axes)
        return original(self, rest if self.count(rest) == self.count(axes) else axes)

    return method(DeviceAxes, "groups", groups)


@mutant("all-reduce runs over every device, not over the partial axes alone", first=9)
def all_reduce_everywhere() -> AbstractContextManager[None]:
    def emit(self: AllReduceStep, context: Any, value: Any) -> Any:
        kind = all_reduce.reduction_of(value.state)
        return context.builder.all_reduce(value.hlo, context.axes.groups(context.axes.all), kind)

    return method(AllReduceStep, "emit", emit)


@mutant("a partial maximum (or minimum, product) is summed", first=4)
def reduction_always_sum() -> AbstractContextManager[None]:
    return function(all_reduce.reduction_of, lambda state: ReductionKind.SUM)


@mutant("reduce-scatter cuts another dimension of the same size", "dot", first=339)
def reduce_scatter_other_dim() -> AbstractContextManager[None]:
    original = ReduceScatterStep.emit

    def emit(self: ReduceScatterStep, context: Any, value: Any) -> Any:
        same = [
            d
            for d, n in enumerate(value.shape.dims)
            if n == value.shape.dims[self.dim] and value.state.dims[d] == value.state.dims[self.dim]
        ]
        if len(same) == 1:
            return original(self, context, value)
        b = context.builder
        other = next(d for d in same if d != self.dim)
        order = list(range(value.state.rank))
        order[self.dim], order[other] = other, self.dim
        turned = replace(value, hlo=b.transpose(value.hlo, order))
        return original(self, context, turned)

    return method(ReduceScatterStep, "emit", emit)


@mutant("a slice starts at 0 on every device")
def slice_without_offset() -> AbstractContextManager[None]:
    original = SliceStep.emit

    def emit(self: SliceStep, context: Any, value: Any) -> Any:
        right = context.coordinate
        context.coordinate = lambda axes: right(())
        try:
            return original(self, context, value)
        finally:
            del context.coordinate

    return method(SliceStep, "emit", emit)


@mutant("the coordinate along several axes counts the major one fastest")
def coordinate_order() -> AbstractContextManager[None]:
    original = PartitionContext._coordinate
    return method(
        PartitionContext,
        "_coordinate",
        lambda self, axes: original(self, tuple(reversed(axes))),
    )


@mutant("the coordinate along an axis uses the stride of the next one")
def coordinate_stride() -> AbstractContextManager[None]:
    original = PartitionContext._coordinate

    class Shifted(DeviceAxes):
        def stride(self, axis: int) -> int:
            return DeviceAxes.stride(self, min(axis + 1, len(self.sizes) - 1))

    def coordinate(self: PartitionContext, axes: Axes) -> Any:
        right = self.axes
        self.axes = Shifted(right.sizes)
        try:
            return original(self, axes)
        finally:
            self.axes = right

    return method(PartitionContext, "_coordinate", coordinate)


@mutant("a device's offset is that of tiles rounded down, not up", first=13)
def offset_rounded_down() -> AbstractContextManager[None]:
    from partitioner.partition.shard_state import tile_size

    original = PartitionContext.offset

    def offset(self: PartitionContext, state: Any, dim: int, size: int) -> Any:
        with function(tile_size, lambda n, shards: n // shards):
            return original(self, state, dim, size)

    return method(PartitionContext, "offset", offset)


@mutant("unevenly split dimensions are taken to line up with any other split", first=4)
def uneven_tiles_line_up() -> AbstractContextManager[None]:
    return method(ReshardProblem, "lines_up", lambda self, dim, coarse, factor: True)


@mutant("collective-permute sends backwards", first=4)
def permute_backwards() -> AbstractContextManager[None]:
    original = permute.source_target_pairs

    def pairs(*args: Any) -> Any:
        return ListedPairs(tuple((target, source) for source, target in original(*args)))

    return function(original, pairs)


@mutant("a dimension grown to whole tiles is padded at its low end")
def padded_in_front() -> AbstractContextManager[None]:
    def pad_to(b: Any, x: Any, dims: Any) -> Any:
        if x.dims == dims:
            return x
        low = tuple(n - have for n, have in zip(dims, x.dims, strict=True))
        return b.pad(x, b.scalar_like(x, 0), low, (0,) * len(dims))

    return function(tiles.pad_to, pad_to)


@mutant("what is joined too large is trimmed at its low end", first=2)
def trimmed_in_front() -> AbstractContextManager[None]:
    def trim_to(b: Any, x: Any, dims: Any) -> Any:
        if x.dims == dims:
            return x
        return b.slice(x, tuple(have - n for n, have in zip(dims, x.dims, strict=True)), x.dims)

    return function(tiles.trim_to, trim_to)


@mutant("a value once resharded is taken for every later state of the same local sizes", first=12)
def reshard_memory_ignores_state() -> AbstractContextManager[None]:
    original = PartitionContext.reshard

    def reshard(self: PartitionContext, value: Any, state: Any) -> Any:
        for (held, known), made in self._reshards.items():
            if held == value and known.shards(self.axes) == state.shards(self.axes):
                if not state.partial and not known.partial:
                    return replace(made, state=state)
        return original(self, value, state)

    return method(PartitionContext, "reshard", reshard)
