"""Choice of the products that the tile unit computes, or vectors of narrow numbers where there is no such unit."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.cpu.kernels.gemm.tile_types import FORMS, TileForm, most_depth
from runtime.cpu.kernels.gemm.tile_unit import Unit, narrow_unit
from spmd.shape import PrimitiveType

#: Multiplications from which on it pays, and lines of the other operand for which splitting f32 does (measured).
_LEAST_PRODUCTS, _LEAST_SPLIT_PRODUCTS = 1 << 14, 1 << 17
_LEAST_LINES_FOR_SPLIT = 16
#: Depth, and rows and columns, from which on vectors of bf16 gain beside BLAS on converted matrices (measured): they
#: multiply 32 deep at a time, and packing a matrix for one row takes longer than all that BLAS does with it.
_LEAST_DEPTH, _LEAST_LINES = 16, 2


@dataclass(frozen=True, slots=True)
class Gains:
    """Sizes from which a product is faster on the tile unit than with one thread of BLAS."""

    lines: int
    depth: int
    products: int

    def at(self, m: int, n: int, k: int) -> bool:
        """Rows and columns of the result, and depth; and enough of all of them."""
        return min(m, n) >= self.lines and k >= self.depth and m * n * k >= self.products


#: Measured.
GAINS = Gains(lines=32, depth=16, products=1 << 20)


def suits_tiles(
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType], sizes: tuple[int, int, int]
) -> bool:
    """Return whether the tile unit, or what stands in for it, multiplies lhs and rhs of such types, m, k and n.

    Products of f32 alone are not meant: BLAS's function uses the unit by itself.
    """
    form, (m, k, n) = TileForm(*types), sizes
    splits = form.parts != form.rhs_parts
    if form not in FORMS or form.rhs_parts == form.parts > 1:
        return False
    if splits and (n if form.parts > 1 else m) < _LEAST_LINES_FOR_SPLIT:
        return False
    pays = m * k * n >= (_LEAST_SPLIT_PRODUCTS if splits else _LEAST_PRODUCTS)
    fits = form.result.byte_size == 4 or k <= most_depth(form)
    unit = unit_of(form)
    if unit is Unit.VECTORS and form.is_float:
        pays = pays and k >= _LEAST_DEPTH and min(m, n) >= _LEAST_LINES
    return pays and fits and unit is not None


def unit_of(form: TileForm) -> Unit | None:
    """Return the unit that multiplies such matrices here without conversion; None if there is none.

    Only the tile unit multiplies parts: vectors of f32 take less time than three products of parts.
    """
    unit = narrow_unit(is_float=form.is_float)
    return unit if unit is Unit.TILES or form.parts == form.rhs_parts == 1 else None
