"""Products of a few rows and a large matrix without the packing of BLAS, which takes longer than such a product."""

from __future__ import annotations

from functools import cache

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.native_call import RelocatableCall, has_runs, moving, native_call
from runtime.program.argument_record import Address, Record, Word, record
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

FUNCTION = "spmd_thin_dot"


@record
class ThinDotRecord(Record):
    """Record of result[rows, n] = lhs[rows, k] rhs[k, n]: addresses, sizes, and strides in bytes.

    Rows of lhs are contiguous. If rhs is read by row, rows of rhs and of the result are contiguous as well, and
    ``rhs_stride`` is that between rows. Otherwise columns of rhs are contiguous, and it is that between columns.
    """

    lhs: Address
    rhs: Address
    result: Address
    n: Word
    k: Word
    lhs_stride: Word
    rhs_stride: Word
    result_row: Word
    result_column: Word


@cache
def thin_dot_code(kind: PrimitiveType, rows: int, by_row: bool) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``rows`` rows of f32 or f64, which takes a ThinDotRecord.

    ``by_row`` tells that rhs is read by row.
    """
    ir = DeferredIr("runtime.cpu.kernels.gemm.thin_dot_ir", "thin_dot_ir", (kind, rows, by_row))
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.UNROLL)


def thin_product(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    """Bind out = lhs rhs of f32 or f64 if lhs has few rows or rhs has few columns.

    Returns None if BLAS is faster, or if the matrices do not have the contiguous runs that the code reads.
    """
    product = _few_rows(kind, lhs, rhs, out)
    if product is None:
        transposed = _few_rows(kind, rhs.T, lhs.T, out.T)
        return None if transposed is None else transposed.exchanged()
    return product


def _few_rows(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    """Bind the product if lhs has few rows, each contiguous, and rhs is large; otherwise return None."""
    if (
        len(lhs) > tuning.THIN_MOST_ROWS
        or rhs.nbytes < tuning.THIN_LEAST_BYTES
        or not has_runs(lhs)
    ):
        return None
    by_row = has_runs(rhs) and has_runs(out) and len(lhs) <= tuning.THIN_CALL_ROWS
    if not by_row and not has_runs(rhs.T):
        return None
    product = RelocatableCall(())
    for first in range(0, len(lhs), tuning.THIN_CALL_ROWS):
        rows, to = (
            lhs[first : first + tuning.THIN_CALL_ROWS],
            out[first : first + tuning.THIN_CALL_ROWS],
        )
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
