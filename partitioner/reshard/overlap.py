"""Overlap of a device's tiles in two states: the core of the lower bound.

Two questions about a source and a target split of one array: how many elements of its target tile does a device hold
already, and of how many elements does any device hold both tiles? Both are counted by digits if everything divides.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.partition.shard_state import tile_size
from partitioner.reshard.agreement import Digit, agreement, digits
from partitioner.reshard.equivalence_classes import EquivalenceClasses

#: Largest number of coordinates or pieces listed if digits do not suffice: uneven tiles, sizes 2 and 3 at the same
#: position.
MOST_LISTED = 4096

Vector: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def held_elements(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    before: DimAxes,
    after: DimAxes,
    most_listed: int = MOST_LISTED,
) -> float:
    """Return the elements of the tile after that lie in the tile before, averaged over devices.

    The result is exact, except for uneven dimensions whose axes have more than ``most_listed`` coordinates: there it is
    a lower bound.
    """
    held = 1.0
    for part in _independent(before, after):
        sizes = tuple(dims[d] for d in part)
        held *= _held_together(
            axes, sizes, tuple(before[d] for d in part), tuple(after[d] for d in part), most_listed
        )
    return held


def _independent(before: DimAxes, after: DimAxes) -> tuple[tuple[int, ...], ...]:
    """Return dimensions in groups. No axis splits dimensions of two groups, so their overlaps are independent."""
    ties: EquivalenceClasses[tuple[str, int]] = EquivalenceClasses()
    for dim, (have, want) in enumerate(zip(before, after, strict=True)):
        for axis in (*have, *want):
            ties.tie(("dim", dim), ("axis", axis))
    groups: dict[tuple[str, int], list[int]] = {}
    for dim in range(len(before)):
        groups.setdefault(ties.find(("dim", dim)), []).append(dim)
    return tuple(map(tuple, groups.values()))


@lru_cache(maxsize=4096)
def _held_together(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    before: DimAxes,
    after: DimAxes,
    most_listed: int,
) -> float:
    """Return ``held_elements`` of dimensions that share axes."""
    counts = [
        (axes.count(have), axes.count(want)) for have, want in zip(before, after, strict=True)
    ]
    most = math.prod(
        min(tile_size(n, s), tile_size(n, t)) for n, (s, t) in zip(dims, counts, strict=True)
    )
    if all(n % s == 0 and n % t == 0 for n, (s, t) in zip(dims, counts, strict=True)):
        agreed = agreement(axes, before, after)
        if agreed.exact:
            return most * agreed.fraction
    involved = tuple(dict.fromkeys(a for split in (before, after) for held in split for a in held))
    if axes.count(involved) > most_listed:
        return float(most)
    coordinates = np.indices([axes.sizes[a] for a in involved]).reshape(len(involved), -1)
    place = dict(zip(involved, coordinates, strict=True))
    overlap = np.ones(coordinates.shape[1], dtype=np.int64)
    for n, have, want in zip(dims, before, after, strict=True):
        start, end = _tile(axes, place, n, have)
        other_start, other_end = _tile(axes, place, n, want)
        common = np.minimum(end, other_end) - np.maximum(start, other_start)
        overlap *= np.maximum(common, 0)
    return float(overlap.mean())


def _tile(
    axes: DeviceAxes, place: dict[int, Vector], n: int, held: Axes
) -> tuple[Vector | int, Vector | int]:
    """Return the first element, and the one after the last, of the tiles into which ``held`` splits ``n`` elements."""
    number: Vector | int = 0
    for axis in held:
        number = number * axes.sizes[axis] + place[axis]
    size = tile_size(n, axes.count(held))
    return number * size, np.minimum(number * size + size, n)


def met_fraction(
    axes: DeviceAxes,
    dims: tuple[int, ...],
    before: DimAxes,
    after: DimAxes,
    most_listed: int = MOST_LISTED,
) -> float:
    """Return the fraction of the elements that some device has in its tile before and in its tile after.

    The result is exact, except for uneven dimensions that make more than ``most_listed`` pieces: there it is a lower
    bound.

        axes (2, 2): ((0,), ()) against ((), (0,))    rows of half i and columns of half i: half of the elements
        axes (2, 2): ((0,), ()) against ((), (1,))    device (i, j) has rows i before, columns j after: all of them
    """
    met = 1.0
    for part in _independent(before, after):
        sizes = tuple(dims[d] for d in part)
        met *= _met_together(
            axes, sizes, tuple(before[d] for d in part), tuple(after[d] for d in part), most_listed
        )
    return met


@lru_cache(maxsize=4096)
def _met_together(
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
        ties: EquivalenceClasses[tuple[int, int]] = EquivalenceClasses()
        fraction = 1.0
        for digit, position in source.items():
            if digit in target and ties.tie(position, target[digit]):
                fraction /= digit[2]
        return fraction
    elements = math.prod(dims)
    pieces = math.prod(
        axes.count(have) + axes.count(want) for have, want in zip(before, after, strict=True)
    )
    if pieces > most_listed or not elements:
        return 1.0
    return _met_elements(axes, dims, before, after) / elements


def _compares(axes: DeviceAxes, dims: tuple[int, ...], before: DimAxes, after: DimAxes) -> bool:
    """Return whether everything divides, and digits of both splits stand for the same digits of a position."""
    counts = [axes.count(held) for held in (*before, *after)]
    even = not any(n % count for n, count in zip((*dims, *dims), counts, strict=True))
    return even and agreement(axes, before, after).exact


def _positions(axes: DeviceAxes, split: DimAxes) -> dict[Digit, tuple[int, int]]:
    """Return for each digit of an axis the digit of an element's position that it decides, as (dimension, digit)."""
    return {
        digit: (dim, place)
        for dim, held in enumerate(split)
        for place, digit in enumerate(digits(axes, held))
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
            np.minimum(np.arange(axes.count(held)) * tile_size(n, axes.count(held)), n)
            for held in (have, want)
        ]
        cuts = np.sort(np.concatenate([*starts, [n]]))  # no element lies between equal bounds
        along = [-1 if d == dim else 1 for d in range(len(dims))]
        met = met * np.diff(cuts).reshape(along)
        for held, places in ((have, old), (want, new)):
            number = cuts[:-1] // tile_size(n, axes.count(held))
            for axis in reversed(held):
                places[axis] = (number % axes.sizes[axis]).reshape(along)
                number = number // axes.sizes[axis]
    for axis in old:
        if axis in new:
            met = met * (old[axis] == new[axis])
    return float(met.sum())
