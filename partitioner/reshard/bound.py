"""The least that any program must send to get from one state to another."""

from __future__ import annotations

import math

from partitioner.axes import Axes, DeviceAxes
from partitioner.reshard.agreement import agreement
from partitioner.state import ShardState
from spmd.shape import ArrayShape


def lower_bound(
    axes: DeviceAxes,
    shape: ArrayShape,
    source: ShardState,
    target: ShardState,
    scratch: Axes = (),
) -> float:
    """Bytes a device must receive, averaged over the devices, whatever the algorithm.

    Devices help each other along the axes that the states name, and ``scratch``; along others values may differ.

    Without reduction: what its target tile has and its source tile has not.

    With k terms to be reduced to k' < k and C copies wanted of each result term: an element's first complete copy takes
    k/k' - 1 transfers, every other copy at least one that comes later. That is k - 2k' + k'C transfers per element.
    For an all-reduce over n devices this is 2(n-1)/n times the array, for a reduce-scatter (n-1) times the tile.
    """
    named = dict.fromkeys((*source.used, *source.partial, *target.used, *scratch))
    elements = bound_elements(axes, shape.dims, source, target, axes.count(named))
    return shape.element_type.byte_size * elements


def bound_elements(
    axes: DeviceAxes, dims: tuple[int, ...], source: ShardState, target: ShardState, devices: int
) -> float:
    """``lower_bound`` in elements, where only ``devices`` devices (those along some axes) may help each other."""
    elements = math.prod(dims)
    terms, left = axes.count(source.partial), axes.count(target.partial)
    if terms > left:
        holders = devices / axes.count(target.used)
        return max(0.0, elements * (terms - 2 * left + holders) / devices)
    # Every element has the same number of holders, so this is exact for uneven tiles too.
    needed = elements / axes.count(target.used)
    return max(0.0, needed - _held(axes, dims, source, target))


def _held(axes: DeviceAxes, dims: tuple[int, ...], source: ShardState, target: ShardState) -> float:
    """Elements of its target tile that a device holds already, on average; at least that many for uneven tiles."""
    overlap = 1
    even = True
    for n, have, want in zip(dims, source.shards(axes), target.shards(axes), strict=True):
        even = even and n % have == 0 and n % want == 0
        overlap *= min(-(-n // have), -(-n // want))
    if not even:
        # Unequal tiles of one number cover different elements; assume the best, that they meet everywhere.
        return float(overlap)
    return overlap * agreement(axes, source.dims, target.dims).fraction
