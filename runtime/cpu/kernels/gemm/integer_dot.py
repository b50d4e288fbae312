"""Products of integer matrices as native calls, for integers whose sums no float type represents exactly."""

from __future__ import annotations

from runtime.cpu.kernels.gemm.integer_dot_ir import (
    FUNCTION,
    IntegerDotAlgorithm,
    IntegerDotRecord,
    integer_dot_code,
)
from runtime.cpu.kernels.native_call import RelocatableCall, has_runs, moving, native_call
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


def integer_product(lhs: NDArray, rhs: NDArray, out: NDArray) -> RelocatableCall:
    """Bind out = lhs rhs modulo the range of the type of ``out``.

    The integers must have at least 8 bits. The matrices may have any strides, but contiguous rows or columns are
    faster.
    """
    rows, columns = out.shape
    if has_runs(rhs) and has_runs(out) and columns > 1:
        return _product(IntegerDotAlgorithm.ROWS, lhs, rhs, out)
    if has_runs(lhs.T) and has_runs(out.T) and rows > 1:
        return _product(IntegerDotAlgorithm.ROWS, rhs.T, lhs.T, out.T).exchanged()
    along_depth = has_runs(lhs) and has_runs(rhs.T)
    return _product(
        IntegerDotAlgorithm.DEPTH if along_depth else IntegerDotAlgorithm.ANY, lhs, rhs, out
    )


def _product(
    algorithm: IntegerDotAlgorithm, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall:
    """Bind out = lhs rhs by ``algorithm``, whose contiguous runs the matrices must have."""
    matrices = (lhs, rhs, out)
    record = IntegerDotRecord(
        lhs.ctypes.data,
        rhs.ctypes.data,
        out.ctypes.data,
        *(*out.shape, lhs.shape[1]),
        *(stride for matrix in matrices for stride in matrix.strides),
    )
    kinds = (PrimitiveType.from_numpy(matrix.dtype) for matrix in matrices)
    code = integer_dot_code(*kinds, algorithm)
    return moving(native_call(code, FUNCTION, record.to_array(), matrices))
