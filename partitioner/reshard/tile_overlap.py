"""Fraction of devices with the same tile in two states: the symbolic core of costs and bounds."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.reshard.equivalence_classes import EquivalenceClasses
from spmd.lazy_dataclass import dataclass

#: A sub-axis of prime size: (axis, position among its sub-axes, size); the sub-axes of an axis are major to minor.
SubAxis: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TileOverlap:
    """Result of a comparison: ``fraction`` of the devices whose tile numbers agree in every compared dimension.

    ``exact``: all sub-axes could be compared; otherwise ``fraction`` is an upper bound (sizes 2 and 3 at the same
    position).
    """

    fraction: float
    exact: bool


@lru_cache(maxsize=4096)
def tile_overlap(axes: DeviceAxes, before: DimAxes, after: DimAxes) -> TileOverlap:
    """Compare tile numbers along each dimension, major sub-axes first, as far as both states split it.

    The coordinates along two different sub-axes are equal on 1/size of the devices; if other equalities imply it, the
    fraction stays. The count is that of a spanning forest, without listing devices.

        axes (2, 2): ((0,), (1,)) against ((1,), (0,))    0 = 1, then 1 = 0 again: half the devices agree
    """
    classes: EquivalenceClasses[SubAxis] = EquivalenceClasses()
    fraction, exact = 1.0, True
    for have, want in zip(before, after, strict=True):
        for x, y in zip(prime_sub_axes(axes, have), prime_sub_axes(axes, want), strict=False):
            if x[2] != y[2]:
                exact = False
                break
            if classes.union(x, y):
                fraction /= x[2]
    return TileOverlap(fraction, exact)


@lru_cache(maxsize=4096)
def prime_sub_axes(axes: DeviceAxes, which: Axes) -> tuple[SubAxis, ...]:
    """Return the sub-axes of prime size of the axes ``which``, major to minor."""
    found: list[SubAxis] = []
    for axis in which:
        left, prime, position = axes.sizes[axis], 2, 0
        while left > 1:
            if left % prime:
                prime += 1
                continue
            found.append((axis, position, prime))
            left //= prime
            position += 1
    return tuple(found)


def same_tile_fraction(axes: DeviceAxes, before: DimAxes, after: DimAxes) -> float:
    """Return the fraction of devices that hold the same tile in two states with equal shard counts. Exact."""
    found = tile_overlap(axes, before, after)
    if found.exact:
        return found.fraction
    return _counted_fraction(axes, before, after)


@lru_cache(maxsize=1024)
def _counted_fraction(axes: DeviceAxes, before: DimAxes, after: DimAxes) -> float:
    """Count the fraction by listing the coordinates of the axes involved, for sub-axes that cannot be compared one by
    one.
    """
    involved = tuple(
        dict.fromkeys(a for dims in (before, after) for dim_axes in dims for a in dim_axes)
    )
    coordinates = np.indices([axes.sizes[a] for a in involved]).reshape(len(involved), -1)
    agree = np.ones(coordinates.shape[1], dtype=bool)
    for have, want in zip(before, after, strict=True):
        agree &= _number(axes, involved, coordinates, have) == _number(
            axes, involved, coordinates, want
        )
    return float(agree.mean())


def _number(
    axes: DeviceAxes,
    involved: Axes,
    coordinates: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    dim_axes: Axes,
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    total = np.zeros(coordinates.shape[1], dtype=np.int64)
    for axis in dim_axes:
        total = total * axes.sizes[axis] + coordinates[involved.index(axis)]
    return total
