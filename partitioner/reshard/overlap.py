"""Overlap of a device's tiles in two states: the core of the lower bound.

Two questions about a source and a target split of one array: how many elements of its target tile does a device hold
already, and how many elements have a device that holds them before and after? Both are counted by prime sub-axes if
everything divides.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.partition.shard_state import tile_size
from partitioner.reshard.equivalence_classes import EquivalenceClasses
from partitioner.reshard.tile_overlap import SubAxis, prime_sub_axes, tile_overlap

#: Largest number of coordinates or pieces that are listed if sub-axes cannot be compared: uneven tiles, or sizes 2 and
#: 3 at the same position.
MOST_LISTED = 4096

Vector: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def overlap_elements(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    before: DimAxes,
    after: DimAxes,
    most_listed: int = MOST_LISTED,
) -> float:
    """Return the elements of the tile after that lie in the tile before, averaged over devices.

    The result is exact, except for uneven dimensions whose axes have more than ``most_listed`` coordinates: there it is
    an upper bound.
    """
    elements = 1.0
    for part in _independent(before, after):
        sizes = tuple(dims[d] for d in part)
        elements *= _joint_overlap(
            axes, sizes, tuple(before[d] for d in part), tuple(after[d] for d in part), most_listed
        )
    return elements


def _independent(before: DimAxes, after: DimAxes) -> tuple[tuple[int, ...], ...]:
    """Return dimensions in groups. No axis splits dimensions of two groups, so their overlaps are independent."""
    classes: EquivalenceClasses[tuple[str, int]] = EquivalenceClasses()
    for dim, (have, want) in enumerate(zip(before, after, strict=True)):
        for axis in (*have, *want):
            classes.union(("dim", dim), ("axis", axis))
    groups: dict[tuple[str, int], list[int]] = {}
    for dim in range(len(before)):
        groups.setdefault(classes.find(("dim", dim)), []).append(dim)
    return tuple(map(tuple, groups.values()))


@lru_cache(maxsize=4096)
def _joint_overlap(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    before: DimAxes,
    after: DimAxes,
    most_listed: int,
) -> float:
    """Return ``overlap_elements`` of dimensions that share axes."""
    counts = [
        (axes.count(have), axes.count(want)) for have, want in zip(before, after, strict=True)
    ]
    most = math.prod(
        min(tile_size(n, s), tile_size(n, t)) for n, (s, t) in zip(dims, counts, strict=True)
    )
    if all(n % s == 0 and n % t == 0 for n, (s, t) in zip(dims, counts, strict=True)):
        agreed = tile_overlap(axes, before, after)
        if agreed.exact:
            return most * agreed.fraction
    involved = tuple(
        dict.fromkeys(a for split in (before, after) for dim_axes in split for a in dim_axes)
    )
    if axes.count(involved) > most_listed:
        return float(most)
    coordinates = np.indices([axes.sizes[a] for a in involved]).reshape(len(involved), -1)
    coordinate_of = dict(zip(involved, coordinates, strict=True))
    overlap = np.ones(coordinates.shape[1], dtype=np.int64)
    for n, have, want in zip(dims, before, after, strict=True):
        start, end = _tile(axes, coordinate_of, n, have)
        other_start, other_end = _tile(axes, coordinate_of, n, want)
        common = np.minimum(end, other_end) - np.maximum(start, other_start)
        overlap *= np.maximum(common, 0)
    return float(overlap.mean())


def _tile(
    axes: DeviceAxes, coordinate_of: dict[int, Vector], n: int, dim_axes: Axes
) -> tuple[Vector | int, Vector | int]:
    """Return the first element, and the one after the last, of the tiles into which ``dim_axes`` splits ``n``
    elements.
    """
    number: Vector | int = 0
    for axis in dim_axes:
        number = number * axes.sizes[axis] + coordinate_of[axis]
    size = tile_size(n, axes.count(dim_axes))
    return number * size, np.minimum(number * size + size, n)


def met_fraction(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    before: DimAxes,
    after: DimAxes,
    most_listed: int = MOST_LISTED,
) -> float:
    """Return the fraction of the elements that some device has in its tile before and in its tile after.

    The result is exact, except for uneven dimensions that make more than ``most_listed`` pieces: there it is an upper
    bound.

        axes (2, 2): ((0,), ()) against ((), (0,))    rows of half i and columns of half i: half of the elements
        axes (2, 2): ((0,), ()) against ((), (1,))    device (i, j) has rows i before, columns j after: all of them
    """
    met = 1.0
    for part in _independent(before, after):
        sizes = tuple(dims[d] for d in part)
        met *= _joint_met_fraction(
            axes, sizes, tuple(before[d] for d in part), tuple(after[d] for d in part), most_listed
        )
    return met


@lru_cache(maxsize=4096)
def _joint_met_fraction(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    before: DimAxes,
    after: DimAxes,
    most_listed: int,
) -> float:
    """Return ``met_fraction`` of dimensions that share axes.

    An axis that splits both ways makes two digits of an element's position equal on such devices; the others are free.
    """
    if _compares(axes, dims, before, after):
        source, target = _positions(axes, before), _positions(axes, after)
        classes: EquivalenceClasses[tuple[int, int]] = EquivalenceClasses()
        fraction = 1.0
        for sub_axis, position in source.items():
            if sub_axis in target and classes.union(position, target[sub_axis]):
                fraction /= sub_axis[2]
        return fraction
    elements = math.prod(dims)
    pieces = math.prod(
        axes.count(have) + axes.count(want) for have, want in zip(before, after, strict=True)
    )
    if pieces > most_listed or not elements:
        return 1.0
    return _met_elements(axes, dims, before, after) / elements


def _compares(axes: DeviceAxes, dims: tuple[int, ...], before: DimAxes, after: DimAxes) -> bool:
    """Return whether everything divides, and the sub-axes of both splits stand for the same digits of a position."""
    counts = [axes.count(dim_axes) for dim_axes in (*before, *after)]
    even = not any(n % count for n, count in zip((*dims, *dims), counts, strict=True))
    return even and tile_overlap(axes, before, after).exact


def _positions(axes: DeviceAxes, split: DimAxes) -> dict[SubAxis, tuple[int, int]]:
    """Return for each sub-axis the digit of an element's position that it decides, as (dimension, digit)."""
    return {
        sub_axis: (dim, index)
        for dim, dim_axes in enumerate(split)
        for index, sub_axis in enumerate(prime_sub_axes(axes, dim_axes))
    }


def _met_elements(
    axes: DeviceAxes, dims: tuple[int, ...], before: DimAxes, after: DimAxes
) -> float:
    """Count by listing the pieces into which both splits cut the dimensions."""
    met = np.ones((1,) * len(dims))
    old: dict[int, Vector] = {}
    new: dict[int, Vector] = {}
    for dim, (n, have, want) in enumerate(zip(dims, before, after, strict=True)):
        starts = [
            np.minimum(np.arange(axes.count(dim_axes)) * tile_size(n, axes.count(dim_axes)), n)
            for dim_axes in (have, want)
        ]
        cuts = np.sort(np.concatenate([*starts, [n]]))  # no element lies between equal bounds
        along = [-1 if d == dim else 1 for d in range(len(dims))]
        met = met * np.diff(cuts).reshape(along)
        for dim_axes, axis_indices in ((have, old), (want, new)):
            number = cuts[:-1] // tile_size(n, axes.count(dim_axes))
            for axis in reversed(dim_axes):
                axis_indices[axis] = (number % axes.sizes[axis]).reshape(along)
                number = number // axes.sizes[axis]
    for axis in old:
        if axis in new:
            met = met * (old[axis] == new[axis])
    return float(met.sum())
