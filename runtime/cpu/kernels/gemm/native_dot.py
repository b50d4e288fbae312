"""Matrix products as native calls: of BLAS and of code for small and thin ones, repeated over batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.cpu.kernels.copy.copy import SOURCE_WORD as COPY_SOURCE_WORD
from runtime.cpu.kernels.copy.copy import CopyRecord
from runtime.cpu.kernels.gemm.gemm_code import (
    GEMM,
    GEMM_WORDS,
    GEMV,
    MOST_TRANSPOSED,
    NO_TRANSPOSE,
    TRANSPOSE,
    TRANSPOSING_GEMM,
    TYPES,
    GemmRecord,
    GemvRecord,
    Product,
    gemm_code,
    gemv_code,
    register_block,
    transposing_gemm_code,
)
from runtime.cpu.kernels.gemm.thin_dot import MOST_SUMMED, thin_product
from runtime.cpu.kernels.gemm.tile_unit import TILE_THRESHOLDS, has_tile_unit
from runtime.cpu.kernels.native_call import (
    RelocatableCall,
    moving,
    native_call,
)
from runtime.cpu.libraries.blas import gemm_function, gemv_function
from runtime.program.index_order import merged_dims
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Fewest rows of the left matrix at which transposing the right one pays (measured).
_LEAST_ROWS_FOR_TRANSPOSE = 32

#: Most multiplications of a product that calls no BLAS (measured), and of one whose rows are not full vectors: OpenBLAS
#: calls malloc for the remainder of a row up to there.
_MOST_SMALL, _MOST_RAGGED = 1 << 18, 10**6
_FULL_VECTORS = 16
#: Most rows of lhs for which packing rhs does not pay, the fewest columns for that, and the largest depth: each row of
#: rhs is on another page, which must still be in the TLB for the next columns (measured).
_FEW_ROWS, _MANY_COLUMNS, _MOST_FLAT_DEPTH = 32, 64, 2048


def is_small(m: int, n: int, k: int) -> bool:
    """Return whether generated code computes the product if rhs is row-major, without BLAS."""
    if m * n * k <= (_MOST_RAGGED if n % _FULL_VECTORS else _MOST_SMALL):
        return True
    is_flat = m <= _FEW_ROWS and n >= _MANY_COLUMNS and k <= _MOST_FLAT_DEPTH
    return is_flat and not (TILE_THRESHOLDS.at(m, n, k) and has_tile_unit())


def over_batch(
    product: RelocatableCall, batch: Sequence[int], lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall:
    """Repeat ``product``, of the first matrices of three arrays [batch.., rows, columns], for all matrices."""
    strides = [array.strides[: len(batch)] for array in (lhs, rhs, out)]
    sizes, strides_by_array = merged_dims(batch, strides)
    for d in reversed(range(len(sizes))):
        product = product.repeated(sizes[d], [own[d] for own in strides_by_array])
    return product


def blas_product(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    """Bind out = lhs rhs, matrices of ``kind``. None if there is no BLAS, or if it cannot read or write them."""
    if not _lies_by_row(out):
        if not _lies_by_row(out.T):
            return None
        transposed = blas_product(kind, rhs.T, lhs.T, out.T)
        return None if transposed is None else transposed.exchanged()
    if not all(_lies_by_row(x) or _lies_by_row(x.T) for x in (lhs, rhs)):
        return None
    if out.shape[1] == 1:
        return _vector_product(kind, lhs, rhs[:, 0], out[:, 0])
    if out.shape[0] == 1:
        transposed = _vector_product(kind, rhs.T, lhs[0], out[0])
        return None if transposed is None else transposed.exchanged()
    (m, k), n = lhs.shape, rhs.shape[1]
    in_registers = _lies_by_row(rhs) and m > MOST_SUMMED and is_small(m, n, k)
    thin = None if in_registers else thin_product(kind, lhs, rhs, out)
    special = thin or _transposing_product(kind, lhs, rhs, out)
    if special is not None:
        return special
    arguments = _gemm_record(lhs, rhs, out)
    gemm = _product_for(kind, arguments)
    if gemm is None:
        return None
    record = arguments.to_array()
    return moving(native_call(gemm_code(kind, gemm), GEMM, record, (lhs, rhs, out)))


def _product_for(kind: PrimitiveType, arguments: GemmRecord) -> Product | None:
    """Return the product's variant; None if it needs BLAS, and there is none."""
    by_row = arguments.transpose_rhs == NO_TRANSPOSE
    if kind in TYPES and by_row and is_small(arguments.m, arguments.n, arguments.k):
        return register_block(arguments.m, arguments.n, kind)
    return gemm_function(kind, (arguments.m, arguments.n, arguments.k))


def _gemm_record(lhs: NDArray, rhs: NDArray, out: NDArray) -> GemmRecord:
    return GemmRecord(
        lhs.ctypes.data,
        rhs.ctypes.data,
        out.ctypes.data,
        m=out.shape[0],
        n=out.shape[1],
        k=lhs.shape[1],
        lda=_leading_dimension(lhs),
        ldb=_leading_dimension(rhs),
        ldc=_leading_dimension(out),
        transpose_lhs=NO_TRANSPOSE if _lies_by_row(lhs) else TRANSPOSE,
        transpose_rhs=NO_TRANSPOSE if _lies_by_row(rhs) else TRANSPOSE,
    )


def _transposing_product(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    """Bind a product that makes a small right matrix row-major first; None if that does not pay."""
    if _lies_by_row(rhs) or rhs.size > MOST_TRANSPOSED or len(lhs) < _LEAST_ROWS_FOR_TRANSPOSE:
        return None
    rows, columns = rhs.shape
    by_row = np.empty(rhs.shape, rhs.dtype)  # only for its strides: native code has its own copy
    product = _gemm_record(lhs, by_row, out)
    gemm = _product_for(kind, product)
    if gemm is None:
        return None
    inner = (columns, rows, rhs.strides[1], by_row.strides[0])
    copy = CopyRecord(rhs.ctypes.data, 0, 0, *inner, ())
    record = np.array([*product.to_list(), *copy.to_list()], np.int64)
    code = transposing_gemm_code(kind, gemm)
    call = moving(native_call(code, TRANSPOSING_GEMM, record, (lhs, rhs, out)))
    source = record.ctypes.data + 8 * (GEMM_WORDS + COPY_SOURCE_WORD)
    return RelocatableCall(call.calls, call.lhs, (source,), call.result)


def _vector_product(
    kind: PrimitiveType, matrix: NDArray, vector: NDArray, out: NDArray
) -> RelocatableCall | None:
    """Bind out = matrix vector; None if there is no BLAS, or if it does not support the strides."""
    gemv = gemv_function(kind)
    steps = [1 if x.size == 1 else x.strides[0] // x.itemsize for x in (vector, out)]
    if gemv is None or min(steps) < 1:
        return None
    by_row = _lies_by_row(matrix)
    rows, columns = matrix.shape if by_row else matrix.T.shape
    arguments = GemvRecord(
        matrix.ctypes.data,
        vector.ctypes.data,
        out.ctypes.data,
        rows=rows,
        columns=columns,
        lda=_leading_dimension(matrix),
        transpose=NO_TRANSPOSE if by_row else TRANSPOSE,
        vector_step=steps[0],
        result_step=steps[1],
    )
    record = arguments.to_array()
    return moving(native_call(gemv_code(kind, gemv), GEMV, record, (matrix, vector, out)))


def _lies_by_row(matrix: NDArray) -> bool:
    """Return whether the matrix is row-major with contiguous rows that do not overlap."""
    (rows, columns), (down, right), item = matrix.shape, matrix.strides, matrix.itemsize
    return (columns == 1 or right == item) and (
        rows == 1 or (down >= columns * item and down % item == 0)
    )


def _leading_dimension(matrix: NDArray) -> int:
    """Return the leading dimension: elements between rows (or columns)."""
    lying = matrix if _lies_by_row(matrix) else matrix.T
    rows, columns = lying.shape
    return int(max(columns, lying.strides[0] // lying.itemsize if rows > 1 else columns))
