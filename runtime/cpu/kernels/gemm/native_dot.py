"""Matrix products as native calls: of BLAS, with conversions of other types, repeated over batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.cpu.kernels.convert import SOURCE_WORD, TARGET_WORD, converting
from runtime.cpu.kernels.copy.copy_ir import SOURCE_WORD as COPY_SOURCE_WORD
from runtime.cpu.kernels.copy.copy_ir import CopyRecord
from runtime.cpu.kernels.gemm.blas_call_ir import (
    GEMM,
    GEMM_WORDS,
    GEMV,
    MOST_TRANSPOSED,
    NO_TRANSPOSE,
    TRANSPOSE,
    TRANSPOSING_GEMM,
    GemmIr,
    GemmRecord,
    GemvRecord,
    blas_gemm_ir,
    gemm_code,
    gemv_code,
    transposing_gemm_code,
)
from runtime.cpu.kernels.gemm.relocatable_calls import RelocatableCall, moving
from runtime.cpu.kernels.gemm.small_dot_ir import register_block, small_gemm_ir
from runtime.cpu.kernels.gemm.thin_dot import MOST_SUMMED, thin_product
from runtime.cpu.kernels.gemm.tile_choice import TILE_THRESHOLDS
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.kernels.native_call import NativeAction, NativeCall, native_call
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
    gemm = _gemm_for(kind, arguments)
    if gemm is None:
        return None
    record = arguments.to_array()
    return moving(native_call(gemm_code(gemm), GEMM, record, (lhs, rhs, out)))


def _gemm_for(kind: PrimitiveType, arguments: GemmRecord) -> GemmIr | None:
    """Return the IR of the product; None if it needs BLAS, and there is none."""
    by_row = arguments.transpose_rhs == NO_TRANSPOSE
    is_real = kind in (PrimitiveType.F32, PrimitiveType.F64)
    if is_real and by_row and is_small(arguments.m, arguments.n, arguments.k):
        return small_gemm_ir(kind, register_block(arguments.m, arguments.n, kind))
    gemm = gemm_function(kind, (arguments.m, arguments.n, arguments.k))
    return None if gemm is None else blas_gemm_ir(kind, gemm)


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
    gemm = _gemm_for(kind, product)
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


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Calls of a conversion, and the addresses of the record words with its source and target; empty by default."""

    calls: tuple[NativeCall, ...] = ()
    source: tuple[int, ...] = ()
    target: tuple[int, ...] = ()

    @staticmethod
    def between(source: NDArray, target: NDArray) -> _Conversion | None:
        """Return the conversion; None if there is no native code for it."""
        action = converting(source, target)
        if not isinstance(action, NativeAction):
            return None
        record = action.calls[0].record
        return _Conversion(action.calls, (record + 8 * SOURCE_WORD,), (record + 8 * TARGET_WORD,))


def converted_product(
    kind: PrimitiveType,
    matrices: tuple[NDArray, NDArray, NDArray],
    scratch: Sequence[NDArray],
    block_rows: int,
) -> RelocatableCall | None:
    """Bind the product of two matrices into the third, computed in ``kind``; other types are converted in scratch.

    scratch: for a block of rows of the left matrix, for the right matrix, for a block of the result, as needed.
    """
    lhs, rhs, out = matrices
    spare = list(scratch)
    left, right, total = (spare.pop(0) if x.dtype != kind.numpy else None for x in matrices)
    rhs_conversion = _Conversion() if right is None else _Conversion.between(rhs, right)

    def block(first: int, count: int) -> RelocatableCall | None:
        rows, to = lhs[first : first + count], out[first : first + count]
        here = rows if left is None else left[:count]
        there = to if total is None else total[:count]
        product = blas_product(kind, here, rhs if right is None else right, there)
        before = _Conversion() if left is None else _Conversion.between(rows, here)
        after = _Conversion() if total is None else _Conversion.between(there, to)
        if product is None or before is None or after is None:
            return None
        return RelocatableCall(
            before.calls + product.calls + after.calls,
            product.lhs if left is None else before.source,
            product.rhs if right is None else (),
            product.result if total is None else after.target,
        )

    full, rest = divmod(len(lhs), block_rows)
    blocks, tail = (
        block(0, block_rows),
        block(full * block_rows, rest) if rest else RelocatableCall(()),
    )
    if rhs_conversion is None or blocks is None or tail is None:
        return None
    steps = [block_rows * x.strides[0] for x in (lhs, out)]
    return (
        RelocatableCall(rhs_conversion.calls, rhs=rhs_conversion.source)
        .then(blocks.repeated(full, (steps[0], 0, steps[1])))
        .then(tail)
    )
