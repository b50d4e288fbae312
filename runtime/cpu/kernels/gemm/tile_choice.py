"""Choice of the products that the tile unit computes, or vectors of narrow numbers where there is no such unit."""

from __future__ import annotations

from runtime.cpu.kernels.gemm.tile_types import FORMS, TileForm, most_depth
from runtime.cpu.kernels.gemm.tile_unit import Unit, narrow_unit
from spmd.shape import PrimitiveType

#: Multiplications from which on it pays, and lines of the other operand for which splitting f32 does (measured).
_LEAST_PRODUCTS, _LEAST_SPLIT_PRODUCTS = 1 << 14, 1 << 17
_LEAST_LINES_FOR_SPLIT = 16
#: Depth, and rows and columns, from which on vectors of bf16 gain beside BLAS on converted matrices (measured): they
#: multiply 32 deep at a time, and packing a matrix for one row takes longer than all that BLAS does with it.
_LEAST_DEPTH, _LEAST_LINES = 16, 2


def suits_tiles(
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType], sizes: tuple[int, int, int]
) -> bool:
    """Whether such lhs and rhs, of m, k and n, are multiplied here by the tile unit, or what stands in for it.

    Those of f32 alone are not: BLAS's function goes there by itself.
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
