"""Permute: devices pass entire tiles on, so that other axes, or the same in another order, split the dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.step import ReshardContext, ReshardStep
from partitioner.reshard.tile_overlap import SubAxis, prime_sub_axes, same_tile_fraction
from spmd.device import IotaTile
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape
from spmd.source_target_pairs import DigitPermutation, LinePairs, ListedPairs, SourceTargetPairs

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.hlo.instruction import HloInstruction

#: Largest number of permuted states offered from one state, and of states examined for them.
MAX_PERMUTED_STATES = 64
MAX_ARRANGEMENTS = 256


@dataclass(frozen=True, slots=True)
class PermuteStep(ReshardStep):
    """Split the dimensions by the axes ``dims`` instead, with as many shards per dimension as before.

    axes (2, 2): ((0, 1),) -> ((1, 0),)    collective-permute {0,0} {2,1} {1,2} {3,3}
    """

    dims: DimAxes

    def apply(self, state: ShardState) -> ShardState:
        return ShardState(self.dims, state.partial, state.reduction)

    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        moved = 1.0 - same_tile_fraction(axes, state.dims, self.dims)
        return moved * float(state.local_shape(shape, axes).byte_size)

    def emit(self, context: ReshardContext, value: ShardedValue) -> HloInstruction:
        pairs = source_target_pairs(context.axes, value.state.dims, self.dims)
        return context.builder.collective_permute(value.hlo, pairs)


def source_target_pairs(axes: DeviceAxes, before: DimAxes, after: DimAxes) -> SourceTargetPairs:
    """Return a source for each device, in target order; every device is the source of one.

    A device that holds the tile it needs keeps it (a pair with itself: a device that is no target would receive zeros).
    Along axes that split nothing before or after, nothing moves: they may hold other terms of a partial sum, or other
    values.
    """
    sources = _source_sub_axes(axes, before, after)
    if sources is None:
        return _matched_pairs(axes, before, after)
    numbers = {sub_axis: i for i, sub_axis in enumerate(prime_sub_axes(axes, axes.all))}
    permutation = tuple(numbers[sources.get(sub_axis, sub_axis)] for sub_axis in numbers)
    sizes = tuple(size for _, _, size in numbers)
    return LinePairs(IotaTile.of((1, axes.num_devices)), DigitPermutation(sizes, permutation))


def _source_sub_axes(
    axes: DeviceAxes, before: DimAxes, after: DimAxes
) -> dict[SubAxis, SubAxis] | None:
    """Return, for each sub-axis along which source and target differ, the sub-axis of the target whose coordinate is
    the source's. Returns None if sizes do not match.

    The source's coordinate along a sub-axis that splits the tile before is the target's along the sub-axis at its
    position after. So sub-axes form chains. The last one of a chain is then free, and is given the coordinate of the
    first one: a target whose coordinates in a chain are all equal holds its tile already, and is its own source.

        ((0, 1),) to ((1, 2),)    0 is 1's, 1 is 2's, and 2 is 0's
    """
    sources: dict[SubAxis, SubAxis] = {}
    for have, want in zip(before, after, strict=True):
        pairs = list(zip(prime_sub_axes(axes, have), prime_sub_axes(axes, want), strict=False))
        if any(x[2] != y[2] for x, y in pairs):
            return None
        sources.update(pairs)
    inverse = {target: source for source, target in sources.items()}
    for sub_axis in [target for target in inverse if target not in sources]:
        last = sub_axis
        while last in inverse:
            last = inverse[last]
        sources[sub_axis] = last
    return sources


@lru_cache(maxsize=256)
def _matched_pairs(axes: DeviceAxes, before: DimAxes, after: DimAxes) -> ListedPairs:
    """Return listed pairs for axes whose sub-axes have different sizes. Devices that hold a tile are paired in device
    order.
    """
    devices = np.arange(axes.num_devices)
    involved = (a for dims in (before, after) for dim_axes in dims for a in dim_axes)
    apart = _linear(axes, devices, axes.spread(involved))
    owned, needed = apart, apart
    for have, want in zip(before, after, strict=True):
        owned = owned * axes.count(have) + _linear(axes, devices, have)
        needed = needed * axes.count(want) + _linear(axes, devices, want)
    stays = owned == needed
    sources, targets = devices[~stays], devices[~stays]
    by_tile = sources[np.argsort(owned[sources], kind="stable")]
    targets = targets[np.argsort(needed[targets], kind="stable")]
    source_of = devices.copy()
    source_of[targets] = by_tile
    return ListedPairs(tuple((int(source_of[d]), int(d)) for d in devices))


def _linear(
    axes: DeviceAxes, devices: np.ndarray[tuple[int, ...], np.dtype[np.int64]], dim_axes: Axes
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    total = np.zeros_like(devices)
    for axis in dim_axes:
        total = total * axes.sizes[axis] + devices // axes.stride(axis) % axes.sizes[axis]
    return total


def permute_edges(problem: ReshardProblem, state: ShardState) -> Iterator[PermuteStep]:
    """Yield permutes to states with equal shard counts that agree with more leading axes of the target, the closest
    first.
    """
    split = [d for d, axes in enumerate(state.dims) if axes]
    settled = sum(problem.settled(state, d) for d in split)
    offered = 0
    for chosen in islice(_arrangements(problem, state, split, ()), MAX_ARRANGEMENTS):
        dims = list(state.dims)
        for d, axes in zip(split, chosen, strict=True):
            dims[d] = axes
        step = PermuteStep(tuple(dims))
        after = step.apply(state)
        if sum(problem.settled(after, d) for d in split) > settled:
            yield step
            offered += 1
        if offered == MAX_PERMUTED_STATES:
            return


def _arrangements(
    problem: ReshardProblem, state: ShardState, split: list[int], taken: Axes
) -> Iterator[DimAxes]:
    """Yield axes for the dimensions ``split``, none of ``taken``, that keep the shard counts."""
    if not split:
        yield ()
        return
    current, wanted = state.dims[split[0]], problem.target.dims[split[0]]
    shards = problem.axes.count(current)
    # The target's axes come first, then the current ones, so early candidates are likely to be intermediate states.
    order = tuple(dict.fromkeys((*wanted, *current, *problem.usable)))
    for axes in _sequences(problem, order, shards, (*taken, *state.partial)):
        for rest in _arrangements(problem, state, split[1:], (*taken, *axes)):
            yield (axes, *rest)


def _sequences(problem: ReshardProblem, order: Axes, shards: int, taken: Axes) -> Iterator[Axes]:
    """Yield ordered lists of distinct axes, none of ``taken``, that make ``shards`` shards."""
    if shards == 1:
        yield ()
        return
    for axis in order:
        size = problem.axes.sizes[axis]
        if axis not in taken and shards % size == 0:
            for rest in _sequences(problem, order, shards // size, (*taken, axis)):
                yield (axis, *rest)
