"""Products of matrices as native calls: of BLAS, of conversions of what BLAS does not take, repeated over batches."""

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
    MOST_TURNED,
    NO_TRANSPOSE,
    TRANSPOSE,
    TURNING_GEMM,
    GemmIr,
    GemmRecord,
    GemvRecord,
    blas_gemm_ir,
    gemm_code,
    gemv_code,
    turning_gemm_code,
)
from runtime.cpu.kernels.gemm.relocatable_calls import RelocatableCall, moving
from runtime.cpu.kernels.gemm.small_dot_ir import TYPES, register_block, small_gemm_ir
from runtime.cpu.kernels.gemm.thin_dot import MOST_SUMMED, thin_product
from runtime.cpu.kernels.gemm.tile_choice import GAINS
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.kernels.native_call import NativeAction, NativeCall, native_call
from runtime.cpu.libraries.blas import gemm_function, gemv_function
from runtime.program.index_order import merged_dims
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Rows of the left matrix from which on turning the right one costs less than it gains (measured).
_LEAST_ROWS_FOR_TURNING = 32

#: Multiplications of a product at most that calls no BLAS (measured), and of one whose rows are no whole vectors:
#: OpenBLAS asks malloc for the rest of a row up to there.
_MOST_SMALL, _MOST_RAGGED = 1 << 18, 10**6
_WHOLE_VECTORS = 16
#: Rows of lhs for which BLAS packs rhs in vain, with so many columns at least; and depth at most: rows of rhs are on as
#: many pages, which are to be met again for the next columns (measured).
_FEW_ROWS, _MANY_COLUMNS, _MOST_FLAT_DEPTH = 32, 64, 2048


def is_small(m: int, n: int, k: int) -> bool:
    """Whether native code multiplies by itself, where rhs lies by row."""
    if m * n * k <= (_MOST_RAGGED if n % _WHOLE_VECTORS else _MOST_SMALL):
        return True
    is_flat = m <= _FEW_ROWS and n >= _MANY_COLUMNS and k <= _MOST_FLAT_DEPTH
    return is_flat and not (GAINS.at(m, n, k) and has_tile_unit())


def over_batch(
    product: RelocatableCall, batch: Sequence[int], lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall:
    """``product``, of the first matrices of three arrays [batch.., rows, columns], of all of them."""
    strides = [array.strides[: len(batch)] for array in (lhs, rhs, out)]
    sizes, strides_by_array = merged_dims(batch, strides)
    for d in reversed(range(len(sizes))):
        product = product.repeated(sizes[d], [own[d] for own in strides_by_array])
    return product


def blas_product(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    """out = lhs rhs, all of them matrices of ``kind``. None where BLAS cannot be found, or read or write them."""
    if not _lies_by_row(out):
        if not _lies_by_row(out.T):
            return None
        turned = blas_product(kind, rhs.T, lhs.T, out.T)
        return None if turned is None else turned.exchanged()
    if not all(_lies_by_row(x) or _lies_by_row(x.T) for x in (lhs, rhs)):
        return None
    if out.shape[1] == 1:
        return _vector_product(kind, lhs, rhs[:, 0], out[:, 0])
    if out.shape[0] == 1:
        turned = _vector_product(kind, rhs.T, lhs[0], out[0])
        return None if turned is None else turned.exchanged()
    (m, k), n = lhs.shape, rhs.shape[1]
    in_registers = _lies_by_row(rhs) and m > MOST_SUMMED and is_small(m, n, k)
    thin = None if in_registers else thin_product(kind, lhs, rhs, out)
    special = thin or _turning_product(kind, lhs, rhs, out)
    if special is not None:
        return special
    words = _gemm_words(lhs, rhs, out)
    gemm = _gemm_for(kind, words)
    if gemm is None:
        return None
    record = words.to_array()
    return moving(native_call(gemm_code(gemm), GEMM, record, (lhs, rhs, out)))


def _gemm_for(kind: PrimitiveType, words: GemmRecord) -> GemmIr | None:
    """None where it would be BLAS's, and that cannot be found."""
    by_row = words.transpose_rhs == NO_TRANSPOSE
    if kind in TYPES and by_row and is_small(words.m, words.n, words.k):
        return small_gemm_ir(kind, register_block(words.m, words.n, kind))
    gemm = gemm_function(kind, (words.m, words.n, words.k))
    return None if gemm is None else blas_gemm_ir(kind, gemm)


def _gemm_words(lhs: NDArray, rhs: NDArray, out: NDArray) -> GemmRecord:
    return GemmRecord(
        lhs.ctypes.data,
        rhs.ctypes.data,
        out.ctypes.data,
        m=out.shape[0],
        n=out.shape[1],
        k=lhs.shape[1],
        leading_lhs=_leading(lhs),
        leading_rhs=_leading(rhs),
        leading_result=_leading(out),
        transpose_lhs=NO_TRANSPOSE if _lies_by_row(lhs) else TRANSPOSE,
        transpose_rhs=NO_TRANSPOSE if _lies_by_row(rhs) else TRANSPOSE,
    )


def _turning_product(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    """A product that lays a small right matrix out by row before; None where that does not pay."""
    if _lies_by_row(rhs) or rhs.size > MOST_TURNED or len(lhs) < _LEAST_ROWS_FOR_TURNING:
        return None
    rows, columns = rhs.shape
    by_row = np.empty(rhs.shape, rhs.dtype)  # only its strides: the native code has its own
    product = _gemm_words(lhs, by_row, out)
    gemm = _gemm_for(kind, product)
    if gemm is None:
        return None
    inner = (columns, rows, rhs.strides[1], by_row.strides[0])
    copy = CopyRecord(rhs.ctypes.data, 0, 0, *inner, ())
    record = np.array([*product.to_list(), *copy.to_list()], np.int64)
    code = turning_gemm_code(kind, gemm)
    call = moving(native_call(code, TURNING_GEMM, record, (lhs, rhs, out)))
    source = record.ctypes.data + 8 * (GEMM_WORDS + COPY_SOURCE_WORD)
    return RelocatableCall(call.calls, call.lhs, (source,), call.result)


def _vector_product(
    kind: PrimitiveType, matrix: NDArray, vector: NDArray, out: NDArray
) -> RelocatableCall | None:
    """out = matrix vector."""
    gemv = gemv_function(kind)
    steps = [1 if x.size == 1 else x.strides[0] // x.itemsize for x in (vector, out)]
    if gemv is None or min(steps) < 1:
        return None
    by_row = _lies_by_row(matrix)
    rows, columns = matrix.shape if by_row else matrix.T.shape
    words = GemvRecord(
        matrix.ctypes.data,
        vector.ctypes.data,
        out.ctypes.data,
        rows=rows,
        columns=columns,
        leading=_leading(matrix),
        transpose=NO_TRANSPOSE if by_row else TRANSPOSE,
        vector_step=steps[0],
        result_step=steps[1],
    )
    record = words.to_array()
    return moving(native_call(gemv_code(kind, gemv), GEMV, record, (matrix, vector, out)))


def _lies_by_row(matrix: NDArray) -> bool:
    """Rows without gaps, each behind the one before."""
    (rows, columns), (down, right), item = matrix.shape, matrix.strides, matrix.itemsize
    return (columns == 1 or right == item) and (
        rows == 1 or (down >= columns * item and down % item == 0)
    )


def _leading(matrix: NDArray) -> int:
    """Elements from row to row (or from column to column)."""
    lying = matrix if _lies_by_row(matrix) else matrix.T
    rows, columns = lying.shape
    return int(max(columns, lying.strides[0] // lying.itemsize if rows > 1 else columns))


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Calls, and the addresses of the words that say where they read and write; nothing at all to begin with."""

    calls: tuple[NativeCall, ...] = ()
    source: tuple[int, ...] = ()
    target: tuple[int, ...] = ()

    @staticmethod
    def between(source: NDArray, target: NDArray) -> _Conversion | None:
        """None where there is no native code for it."""
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
    """The product of two matrices into the third, in ``kind``; what is of another type goes through scratch.

    scratch: for a block of rows of the left matrix, for the right matrix, for a block of the result, as needed.
    """
    lhs, rhs, out = matrices
    spare = list(scratch)
    left, right, total = (spare.pop(0) if x.dtype != kind.numpy else None for x in matrices)
    whole = _Conversion() if right is None else _Conversion.between(rhs, right)

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
    if whole is None or blocks is None or tail is None:
        return None
    steps = [block_rows * x.strides[0] for x in (lhs, out)]
    return (
        RelocatableCall(whole.calls, rhs=whole.source)
        .then(blocks.repeated(full, (steps[0], 0, steps[1])))
        .then(tail)
    )
