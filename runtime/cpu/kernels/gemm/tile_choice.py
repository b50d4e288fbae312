"""Choice of the products for the tile unit, or for vectors of narrow types if there is no such unit."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.cpu.kernels.gemm.tile_types import TILE_TYPES, TileTypes, most_depth
from runtime.cpu.kernels.gemm.tile_unit import Unit, narrow_unit
from spmd.shape import PrimitiveType

#: Fewest multiplications at which it pays, and fewest lines of the other operand for splitting f32 (measured).
_LEAST_PRODUCTS, _LEAST_SPLIT_PRODUCTS = 1 << 14, 1 << 17
_LEAST_LINES_FOR_SPLIT = 16
#: Least depth, and fewest rows and columns, at which vectors of bf16 are faster than BLAS on converted matrices
#: (measured): they multiply 32 deep, and packing a matrix for one row takes longer than BLAS's entire product.
_LEAST_DEPTH, _LEAST_LINES = 16, 2


@dataclass(frozen=True, slots=True)
class TileThresholds:
    """Sizes from which a product is faster on the tile unit than with one thread of BLAS."""

    lines: int
    depth: int
    products: int

    def at(self, m: int, n: int, k: int) -> bool:
        """Return whether a product of m rows, n columns and depth k reaches all thresholds."""
        return min(m, n) >= self.lines and k >= self.depth and m * n * k >= self.products


#: Measured thresholds.
TILE_THRESHOLDS = TileThresholds(lines=32, depth=16, products=1 << 20)


def suits_tiles(
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType], sizes: tuple[int, int, int]
) -> bool:
    """Return whether the tile unit, or its vector substitute, computes products of these types and sizes m, k and n.

    f32 products are excluded: the replacement of BLAS's function uses the unit.
    """
    tile_types, (m, k, n) = TileTypes(*types), sizes
    splits = tile_types.parts != tile_types.rhs_parts
    if tile_types not in TILE_TYPES or tile_types.rhs_parts == tile_types.parts > 1:
        return False
    if splits and (n if tile_types.parts > 1 else m) < _LEAST_LINES_FOR_SPLIT:
        return False
    pays = m * k * n >= (_LEAST_SPLIT_PRODUCTS if splits else _LEAST_PRODUCTS)
    fits = tile_types.result.byte_size == 4 or k <= most_depth(tile_types)
    unit = unit_of(tile_types)
    if unit is Unit.VECTORS and tile_types.is_float:
        pays = pays and k >= _LEAST_DEPTH and min(m, n) >= _LEAST_LINES
    return pays and fits and unit is not None


def unit_of(types: TileTypes) -> Unit | None:
    """Return the unit that multiplies such matrices here without conversion; None if there is none.

    Only the tile unit multiplies parts: vectors of f32 take less time than three products of parts.
    """
    unit = narrow_unit(is_float=types.is_float)
    return unit if unit is Unit.TILES or types.parts == types.rhs_parts == 1 else None
