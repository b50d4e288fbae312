"""Products of bf16 and 8-bit matrices, and of bf16 and f32 ones, on the tile unit, where this processor has one.

Where it has none, but instructions for vectors of such numbers, these multiply what lies in no f32.
"""

from __future__ import annotations

from runtime.cpu.kernels.gemm.relocatable_calls import RelocatableCall, has_runs, moving
from runtime.cpu.kernels.gemm.tile_choice import unit_of
from runtime.cpu.kernels.gemm.tile_dot_ir import FUNCTION, tile_dot_code
from runtime.cpu.kernels.gemm.tile_record import TileRecord
from runtime.cpu.kernels.gemm.tile_types import TileForm
from runtime.cpu.kernels.native_call import native_call
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


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
    code = tile_dot_code(form, unit)
    return moving(native_call(code, FUNCTION, record.to_array(), (lhs, rhs, out)))


def _steps(matrix: NDArray) -> tuple[int, int]:
    """Bytes from line to line and along one, of which one is an element's: a direction of one element has any."""
    line, along = matrix.strides
    if matrix.shape[1] == 1 and line != matrix.itemsize:
        along = matrix.itemsize
    if matrix.shape[0] == 1 and along != matrix.itemsize:
        line = matrix.itemsize
    return line, along
