"""Products of bf16 and 8-bit matrices, and of bf16 and f32 ones, on the tile unit, where this processor has one.

Where it has none, but instructions for vectors of such numbers, these multiply what lies in no f32.
"""

from __future__ import annotations

import numpy as np

from runtime.cpu.kernels.gemm.relocatable_calls import RelocatableCall, has_runs, moving
from runtime.cpu.kernels.gemm.tile_block_ir import most_depth
from runtime.cpu.kernels.gemm.tile_dot_ir import FUNCTION, tile_dot_code
from runtime.cpu.kernels.gemm.tile_record import TileWords
from runtime.cpu.kernels.gemm.tile_types import FORMS, TileForm
from runtime.cpu.kernels.gemm.tile_unit import Unit, narrow_unit
from runtime.cpu.kernels.native_call import native_call
from spmd.literal import NDArray
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


def tile_product(lhs: NDArray, rhs: NDArray, out: NDArray) -> RelocatableCall | None:
    """out = lhs rhs, of types that suit. None where a matrix has gaps both ways, or nothing multiplies such types."""
    form = TileForm(*(PrimitiveType.from_numpy(x.dtype) for x in (lhs, rhs, out)))
    unit = unit_of(form)
    if unit is None:
        return None
    if not has_runs(out):
        if not has_runs(out.T):
            return None
        turned = tile_product(rhs.T, lhs.T, out.T)
        return None if turned is None else turned.exchanged()
    if not all(has_runs(x) or has_runs(x.T) for x in (lhs, rhs)):
        return None
    lhs_line, lhs_depth = _steps(lhs)
    rhs_line, rhs_depth = _steps(rhs.T)
    words = TileWords(
        lhs.ctypes.data,
        rhs.ctypes.data,
        out.ctypes.data,
        m=out.shape[0],
        n=out.shape[1],
        k=lhs.shape[1],
        lhs_line=lhs_line,
        lhs_depth=lhs_depth,
        rhs_line=rhs_line,
        rhs_depth=rhs_depth,
        result_row=out.strides[0],
    )
    record = np.array(words.packed(), np.int64)
    return moving(native_call(tile_dot_code(form, unit), FUNCTION, record, (lhs, rhs, out)))


def _steps(matrix: NDArray) -> tuple[int, int]:
    """Bytes from line to line and along one, of which one is an element's: a direction of one element has any."""
    line, along = matrix.strides
    if matrix.shape[1] == 1 and line != matrix.itemsize:
        along = matrix.itemsize
    if matrix.shape[0] == 1 and along != matrix.itemsize:
        line = matrix.itemsize
    return line, along
