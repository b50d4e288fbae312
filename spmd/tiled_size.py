"""Memory of tiled arrays: each tile takes its full size, so partly filled tiles are padded.

f32[6]{0:T(128)} takes 128 elements; s32[33,200]{1,0:T(8,128)} takes 40 x 256. Reference: XLA's "Tiled layout".
"""

from __future__ import annotations

import math
import re

from spmd.shape import ArrayShape, Layout

_TILES = re.compile(r"T((?:\([^()]*\))+)")
_TILE = re.compile(r"\(([^()]*)\)")


def tiled_elements(shape: ArrayShape) -> int | None:
    """Return the number of elements of ``shape`` with the padding of its tiles; None if a tile joins dimensions
    (``*``).
    """
    layout = shape.layout or Layout.default(shape.rank)
    if not shape.rank:
        return shape.num_elements
    sizes = [shape.dims[d] for d in reversed(layout.minor_to_major)]
    for tile in tiles_of(layout):
        known = [part for part in tile if part is not None]
        if len(known) < len(tile):
            return None
        sizes = _tiled(sizes, known)
    return math.prod(sizes)


def tiles_of(layout: Layout) -> list[tuple[int | None, ...]]:
    """Return the sizes of each level of tiles, outermost first; None for a dimension that a tile joins (``*``)."""
    found = _TILES.match(layout.suffix)
    if found is None:
        return []
    return [
        tuple(None if size == "*" else int(size) for size in tile.split(",") if size)
        for tile in _TILE.findall(found[1])
    ]


def _tiled(sizes: list[int], tile: list[int]) -> list[int]:
    """Return the sizes, major to minor, with the minor ones split into tiles: the number of tiles, then the tile's
    sizes.
    """
    sizes = [1] * (len(tile) - len(sizes)) + sizes
    outer = len(sizes) - len(tile)
    counts = [-(-n // max(1, t)) for n, t in zip(sizes[outer:], tile, strict=True)]
    return [*sizes[:outer], *counts, *tile]
