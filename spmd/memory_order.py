"""Order of an array's elements in memory, from its layout: the parts of dimensions, slowest varying first.

    f32[20,30]{0,1}             30 of dimension 1, 20 of dimension 0
    f32[16,256]{1,0:T(8,128)}   2 of dimension 0, 2 of dimension 1, 8 of dimension 0, 128 of dimension 1

A bitcast is defined by this order alone. Reference: XLA's "Tiled layout".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from spmd.errors import UnsupportedError
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, Layout
from spmd.tiled_size import tiles_of


@dataclass(frozen=True, slots=True)
class DimensionPart:
    """Part of ``dimension`` with ``size`` positions. Parts of one dimension are ordered by ``level``, major first."""

    dimension: int
    level: tuple[int, ...]
    size: int


def memory_order(shape: ArrayShape) -> tuple[DimensionPart, ...]:
    """Return the parts of ``shape``'s dimensions as they lie in memory, major to minor.

    Raises UnsupportedError if tiles are padded or join dimensions: the elements then do not fill the memory.
    """
    layout = shape.layout or Layout.default(shape.rank)
    parts = [DimensionPart(d, (), shape.dims[d]) for d in reversed(layout.minor_to_major)]
    for tile in tiles_of(layout):
        parts = _tiled(parts, tile, shape)
    return tuple(parts)


def memory_orders(
    source: ArrayShape, target: ArrayShape
) -> tuple[tuple[DimensionPart, ...], tuple[DimensionPart, ...]]:
    """Return the orders of two shapes of one memory.

    Padded tiles are ignored if both shapes have tiles, and sizes and order are otherwise equal except for sizes of 1.
    Raises UnsupportedError for other shapes with padded tiles.
    """
    try:
        return memory_order(source), memory_order(target)
    except UnsupportedError:
        if not (_has_tiles(source) and _has_tiles(target)):
            raise
        before, after = (memory_order(_without_tiles(shape)) for shape in (source, target))
        if _sizes_above_one(before) != _sizes_above_one(after):
            raise
        return before, after


def logical_order(parts: Sequence[DimensionPart]) -> list[DimensionPart]:
    """Return ``parts`` in the order of a row-major array: by dimension, and by level within each."""
    return sorted(parts, key=lambda part: (part.dimension, part.level))


def _sizes_above_one(parts: Sequence[DimensionPart]) -> list[int]:
    return [part.size for part in parts if part.size != 1]


def common_sizes(one: Sequence[int], other: Sequence[int]) -> list[int] | None:
    """Return the sizes, major to minor, of which those of both are products; None if their boundaries do not nest.

    [6,4] and [3,8] => [3,2,4];  [4,6] and [6,4] => None
    """
    borders = sorted({*_borders(one), *_borders(other)}, reverse=True)
    if any(major % minor for major, minor in pairwise(borders)):
        return None
    return [major // minor for major, minor in pairwise(borders)]


def _borders(sizes: Sequence[int]) -> list[int]:
    """Return the number of elements in 0, 1, .. of the minor dimensions."""
    borders = [1]
    for size in reversed(sizes):
        borders.append(borders[-1] * size)
    return borders


def _has_tiles(shape: ArrayShape) -> bool:
    return shape.layout is not None and bool(tiles_of(shape.layout))


def _without_tiles(shape: ArrayShape) -> ArrayShape:
    return replace(shape, layout=shape.layout and Layout(shape.layout.minor_to_major))


def _tiled(
    parts: list[DimensionPart], tile: tuple[int | None, ...], shape: ArrayShape
) -> list[DimensionPart]:
    """Cut the minor dimensions into tiles: first the number of tiles, then the positions within one."""
    added = [DimensionPart(shape.rank, (i,), 1) for i in range(len(tile) - len(parts))]
    parts = [*added, *parts]
    outer = len(parts) - len(tile)
    counts, inner = [], []
    for part, size in zip(parts[outer:], tile, strict=True):
        if not size or part.size % size:
            raise UnsupportedError(f"the elements of {shape} do not fill the memory of its tiles")
        counts.append(DimensionPart(part.dimension, (*part.level, 0), part.size // size))
        inner.append(DimensionPart(part.dimension, (*part.level, 1), size))
    return [*parts[:outer], *counts, *inner]
