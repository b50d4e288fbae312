"""Products of matrices of bf16 or 8-bit integers, and of bf16 with f32, on the processor's tile unit.

On a processor without tile unit, vector instructions for these types compute the products without f32 operands.
"""

from __future__ import annotations

from runtime.cpu.kernels.gemm.choose import unit_of
from runtime.cpu.kernels.gemm.tile_block_ir import TileRecord
from runtime.cpu.kernels.gemm.tile_dot_ir import FUNCTION, tile_dot_code
from runtime.cpu.kernels.gemm.tile_types import TileTypes
from runtime.cpu.kernels.native_call import RelocatableCall, has_runs, moving, native_call
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


def tile_product(lhs: NDArray, rhs: NDArray, out: NDArray) -> RelocatableCall | None:
    """Bind out = lhs rhs on the tile unit, or by vector instructions in its place.

    Returns None if no unit multiplies such types, or if a matrix has no contiguous dimension.
    """
    types = TileTypes(*(PrimitiveType.from_numpy(x.dtype) for x in (lhs, rhs, out)))
    unit = unit_of(types)
    if unit is None:
        return None
    if not has_runs(out):
        if not has_runs(out.T):
            return None
        transposed = tile_product(rhs.T, lhs.T, out.T)
        return None if transposed is None else transposed.exchanged()
    if not all(has_runs(x) or has_runs(x.T) for x in (lhs, rhs)):
        return None
    lhs_line, lhs_depth = _steps(lhs)
    rhs_line, rhs_depth = _steps(rhs.T)
    record = TileRecord(
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
        out_row=out.strides[0],
        adds=0,
    )
    code = tile_dot_code(types, unit)
    return moving(native_call(code, FUNCTION, record.to_array(), (lhs, rhs, out)))


def _steps(matrix: NDArray) -> tuple[int, int]:
    """Return the strides between rows and between columns in bytes, of which one is the size of an element.

    The stride of a dimension of size 1 is not used, so it may be replaced by that size.
    """
    line, along = matrix.strides
    if matrix.shape[1] == 1 and line != matrix.itemsize:
        along = matrix.itemsize
    if matrix.shape[0] == 1 and along != matrix.itemsize:
        line = matrix.itemsize
    return line, along
