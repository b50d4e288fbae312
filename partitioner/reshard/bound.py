"""Lower bound of the bytes that any program must send to get from one state to another."""

from __future__ import annotations

import math

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.overlap import MOST_LISTED, met_fraction, overlap_elements
from spmd.shape import ArrayShape


def lower_bound(
    axes: DeviceAxes,
    shape: ArrayShape,
    source: ShardState,
    target: ShardState,
    scratch: Axes = (),
) -> float:
    """Return the bytes that a device must receive, averaged over the devices, whatever the algorithm.

    Devices help each other along the axes that the states name, and ``scratch``; along other axes values may differ.

    Without reduction: the elements of its target tile that are not in its source tile.

    With k terms to be reduced to j, each wanted in C copies: an element's first complete copy of each term takes k - j
    transfers, every other copy at least one later transfer, that is k - 2j + jC transfers per element. One more
    transfer is needed if no device both holds a term of the element and wants its result: the first complete copy is
    then made for another device. (j may be any number up to the target's terms, since the others may be zero, which
    costs nothing.) For an all-reduce over n devices this is 2(n-1)/n times the array, for a reduce-scatter (n-1) times
    the tile.
    """
    named = dict.fromkeys((*source.used, *source.partial, *target.used, *scratch))
    elements = bound_elements(axes, shape.dims, source, target, axes.count(named))
    return shape.element_type.byte_size * elements


def bound_elements(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    source: ShardState,
    target: ShardState,
    devices: int,
    most_listed: int = MOST_LISTED,
) -> float:
    """Return ``lower_bound`` in elements if only ``devices`` devices (those along some axes) may help each other.

    A small ``most_listed`` gives a weaker bound in less time (overlap.py).
    """
    elements = math.prod(dims)
    terms, left = axes.count(source.partial), axes.count(target.partial)
    if terms > left:
        copies = devices / axes.count(target.used) / left
        transfers = terms + min(copies - 2, left * (copies - 2))
        made_elsewhere = 1 - met_fraction(axes, dims, source.dims, target.dims, most_listed)
        return max(0.0, elements * (transfers + made_elsewhere) / devices)
    # Every element has the same number of holders, so this is exact for uneven tiles too.
    needed = elements / axes.count(target.used)
    return max(0.0, needed - overlap_elements(axes, dims, source.dims, target.dims, most_listed))
