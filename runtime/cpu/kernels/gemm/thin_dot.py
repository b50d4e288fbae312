"""Products of a few rows and a large matrix: BLAS would pack that matrix, which takes longer than multiplying."""

from __future__ import annotations

from runtime.cpu.kernels.gemm.relocatable_calls import RelocatableCall, has_runs, moving
from runtime.cpu.kernels.gemm.thin_dot_ir import FUNCTION, ThinDotRecord, thin_dot_code
from runtime.cpu.kernels.native_call import native_call
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Rows of one call at most.
_ROWS = 8
#: Rows up to which rows of rhs are added up, where sums of columns could stay in registers: that reads a matrix from
#: memory in longer runs (of 64 MB in 0.5 to 0.8 of the time for 2 to 4 rows), which matters less for more rows.
MOST_SUMMED = 4
#: Rows of a product at most, where rhs is walked by column; by row as many as of a call.
MOST_ROWS = 16
#: Bytes of the large matrix from which on it pays: 256 KB make no difference, at 4 MB it is two to four times as fast.
LEAST_BYTES = 1 << 19


def thin_product(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    """out = lhs rhs of f32 or f64 where lhs has few rows, or rhs few columns; None where BLAS is to be asked."""
    product = _few_rows(kind, lhs, rhs, out)
    if product is None:
        turned = _few_rows(kind, rhs.T, lhs.T, out.T)
        return None if turned is None else turned.exchanged()
    return product


def _few_rows(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    if len(lhs) > MOST_ROWS or rhs.nbytes < LEAST_BYTES or not has_runs(lhs):
        return None
    by_row = has_runs(rhs) and has_runs(out) and len(lhs) <= _ROWS
    if not by_row and not has_runs(rhs.T):
        return None
    product = RelocatableCall(())
    for first in range(0, len(lhs), _ROWS):
        rows, to = lhs[first : first + _ROWS], out[first : first + _ROWS]
        record = ThinDotRecord(
            rows.ctypes.data,
            rhs.ctypes.data,
            to.ctypes.data,
            n=out.shape[1],
            k=lhs.shape[1],
            lhs_stride=lhs.strides[0],
            rhs_stride=rhs.strides[0 if by_row else 1],
            result_row=out.strides[0],
            result_column=out.strides[1],
        )
        code = thin_dot_code(kind, len(rows), by_row)
        product = product.then(
            moving(native_call(code, FUNCTION, record.to_array(), (rows, rhs, to)))
        )
    return product
