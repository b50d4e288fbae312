"""Matrix products as native calls, of BLAS or of code for small and thin products, repeated over batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_has, host_jit
from runtime.cpu.kernels.copy.copy import SOURCE_WORD as COPY_SOURCE_WORD
from runtime.cpu.kernels.copy.copy import CopyRecord
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.kernels.native_call import (
    RelocatableCall,
    moving,
    native_call,
)
from runtime.cpu.libraries.blas import (
    NO_TRANSPOSE,
    TRANSPOSE,
    BlasFunction,
    gemm_function,
    gemv_function,
)
from runtime.program.argument_record import Address, Record, Word, record, word_count
from runtime.program.strides import merged_dims
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


def is_small(m: int, n: int, k: int) -> bool:
    """Return whether generated code, not BLAS, computes m by n products of depth k with a row-major rhs."""
    if m * n * k <= (tuning.MOST_RAGGED if n % tuning.FULL_VECTORS else tuning.MOST_SMALL):
        return True
    is_flat = m <= tuning.FLAT_ROWS and n >= tuning.FLAT_COLUMNS and k <= tuning.FLAT_DEPTH
    return is_flat and not (tuning.TILE_THRESHOLDS.at(m, n, k) and has_tile_unit())


def over_batch(
    product: RelocatableCall, batch: Sequence[int], lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall:
    """Repeat ``product``, of the first matrices of lhs, rhs and out, for all matrices.

    The arrays have the dimensions [batch.., rows, columns].
    """
    strides = [array.strides[: len(batch)] for array in (lhs, rhs, out)]
    sizes, strides_by_array = merged_dims(batch, strides)
    for d in reversed(range(len(sizes))):
        product = product.repeated(sizes[d], [own[d] for own in strides_by_array])
    return product


def blas_product(
    kind: PrimitiveType, lhs: NDArray, rhs: NDArray, out: NDArray
) -> RelocatableCall | None:
    """Bind out = lhs rhs, matrices of type ``kind``, by generated code or by BLAS.

    Returns None if the product needs BLAS and there is none, or if a matrix is neither row-major nor column-major.
    """
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
    in_registers = _lies_by_row(rhs) and m > tuning.MOST_SUMMED and is_small(m, n, k)
    thin = None
    if (
        not (in_registers or kind.is_complex)
        and max(lhs.nbytes, rhs.nbytes) >= tuning.THIN_LEAST_BYTES
    ):
        from runtime.cpu.kernels.gemm.thin_dot import thin_product  # few programs need it

        thin = thin_product(kind, lhs, rhs, out)
    special = thin or (None if kind.is_complex else _transposing_product(kind, lhs, rhs, out))
    if special is not None:
        return special
    arguments = _gemm_record(lhs, rhs, out)
    gemm = _product_for(kind, arguments)
    if gemm is None:
        return None
    record = arguments.to_array()
    return moving(native_call(gemm_code(kind, gemm), GEMM, record, (lhs, rhs, out)))


def _product_for(kind: PrimitiveType, arguments: GemmRecord) -> Product | None:
    """Return the algorithm for a product with these ``arguments``, or None if it needs BLAS and there is none."""
    by_row = arguments.transpose_rhs == NO_TRANSPOSE
    if (
        kind in (PrimitiveType.F32, PrimitiveType.F64)
        and by_row
        and is_small(arguments.m, arguments.n, arguments.k)
    ):
        return register_block(arguments.m, arguments.n, kind)
    return gemm_function(kind, (arguments.m, arguments.n, arguments.k))


def _gemm_record(lhs: NDArray, rhs: NDArray, out: NDArray) -> GemmRecord:
    """Return the record of out = lhs rhs. ``out`` must be row-major; the others may be column-major."""
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
    """Bind a product whose small right matrix is copied to row-major order first.

    Returns None if that does not pay, or if the product needs BLAS and there is none.
    """
    if (
        _lies_by_row(rhs)
        or rhs.size > tuning.TRANSPOSE_MOST_ELEMENTS
        or len(lhs) < tuning.TRANSPOSE_LEAST_ROWS
    ):
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
    """Bind out = matrix vector by BLAS.

    Returns None if there is no BLAS, or if a vector has a negative or zero stride.
    """
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
    """Return whether ``matrix`` is row-major, with contiguous rows that do not overlap."""
    (rows, columns), (down, right), item = matrix.shape, matrix.strides, matrix.itemsize
    return (columns == 1 or right == item) and (
        rows == 1 or (down >= columns * item and down % item == 0)
    )


def _leading_dimension(matrix: NDArray) -> int:
    """Return the number of elements from one row to the next, or, if ``matrix`` is column-major, of columns."""
    lying = matrix if _lies_by_row(matrix) else matrix.T
    rows, columns = lying.shape
    return int(max(columns, lying.strides[0] // lying.itemsize if rows > 1 else columns))


# ---- records, variants and code


GEMM, GEMV, TRANSPOSING_GEMM = "spmd_gemm", "spmd_gemv", "spmd_transposing_gemm"


@record
class GemmRecord(Record):
    """Record of a row-major product result[m, n] = lhs[m, k] rhs[k, n], whose operands may be transposed.

    ``lda``, ``ldb`` and ``ldc`` are the leading dimensions of lhs, rhs and result in elements. ``transpose_lhs`` and
    ``transpose_rhs`` are NO_TRANSPOSE or TRANSPOSE.
    """

    lhs: Address
    rhs: Address
    result: Address
    m: Word
    n: Word
    k: Word
    lda: Word
    ldb: Word
    ldc: Word
    transpose_lhs: Word
    transpose_rhs: Word


@record
class GemvRecord(Record):
    """Record of result = matrix vector.

    The matrix is stored as ``rows`` rows of ``columns`` elements, ``lda`` elements apart; ``transpose`` (NO_TRANSPOSE
    or TRANSPOSE) tells whether the transposed one is multiplied. The steps of the vectors are in elements.
    """

    matrix: Address
    vector: Address
    result: Address
    rows: Word
    columns: Word
    lda: Word
    vector_step: Word
    result_step: Word
    transpose: Word


#: Indices of the words of a GemmRecord that hold the addresses of operands and result.
LHS_WORD, RHS_WORD, RESULT_WORD = range(3)

#: Number of words of a product's record. The words of the copy that transposes the right matrix follow them.
GEMM_WORDS = word_count(GemmRecord)


# ---- small products in registers


@dataclass(frozen=True, slots=True)
class VectorRegisters:
    """Vector registers of a processor.

    ``bytes`` is their width, and ``values`` is how many of them may hold the sums of a block and vectors of rhs.
    """

    bytes: int
    values: int


@cache
def host_registers() -> VectorRegisters:
    """Return the vector registers of the host."""
    wide, narrow = tuning.BLOCK_REGISTERS
    return VectorRegisters(64, wide) if host_has("avx512f") else VectorRegisters(32, narrow)


@dataclass(frozen=True, slots=True)
class RegisterBlock:
    """Block of the result that registers hold: ``rows`` rows of ``vectors`` vectors of ``lanes`` columns.

    ``is_wider`` tells that the block has more columns than the matrix.
    """

    rows: int
    vectors: int
    lanes: int
    is_wider: bool

    @property
    def columns(self) -> int:
        """Return the number of columns of the block."""
        return self.vectors * self.lanes

    def turns(self, m: int, n: int) -> float:
        """Return the estimated cycles of one step of the depth, for all blocks of an m by n result.

        In one cycle two vectors are multiplied and added, or two numbers or one vector are loaded.
        """
        each = max(self.rows * self.vectors / 2, self.rows / 2 + self.vectors) + tuning.LOOP_CYCLES
        return each * -(-m // self.rows) * -(-n // self.columns)


@cache
def register_block(m: int, n: int, kind: PrimitiveType) -> RegisterBlock:
    """Return the block with the fewest estimated cycles for a result of m rows and n columns."""
    registers = host_registers()
    lanes = min(1 << (n - 1).bit_length(), registers.bytes // kind.byte_size)
    blocks = [
        RegisterBlock(rows, vectors, lanes, vectors * lanes > n)
        for rows in range(1, min(m, tuning.MOST_BLOCK_ROWS) + 1)
        for vectors in range(1, min(-(-n // lanes), registers.values // (rows + 1)) + 1)
    ]
    return min(blocks, key=lambda block: (block.turns(m, n), -block.rows))


# ---- code

#: Algorithm of a product: a register block, for small products of f32 or f64, or the function of BLAS.
Product: TypeAlias = RegisterBlock | BlasFunction


@cache
def gemm_code(kind: PrimitiveType, product: Product) -> NativeLibrary:
    """Return the library of ``GEMM`` for elements of type ``kind``, which takes the address of a GemmRecord."""
    passes = Passes.CALL if isinstance(product, BlasFunction) else Passes.TIDY
    return _compiled("gemm_ir", GEMM, kind, product, passes)


@cache
def transposing_gemm_code(kind: PrimitiveType, product: Product) -> NativeLibrary:
    """Return the library of ``TRANSPOSING_GEMM``, which takes a GemmRecord followed by the record of a copy.

    The copy makes the right matrix row-major, on the stack, because small right matrices are read much faster by row.
    """
    return _compiled("transposing_gemm_ir", TRANSPOSING_GEMM, kind, product, Passes.TIDY)


@cache
def gemv_code(kind: PrimitiveType, gemv: BlasFunction) -> NativeLibrary:
    """Return the library of ``GEMV`` for elements of type ``kind``, which takes the address of a GemvRecord."""
    return _compiled("gemv_ir", GEMV, kind, gemv, Passes.CALL)


def _compiled(
    function: str, name: str, kind: PrimitiveType, product: Product, passes: Passes
) -> NativeLibrary:
    """Return the library of ``name``, whose IR ``function`` of blas_call_ir.py writes.

    The IR depends on the register block or on the width of BLAS's integers, and contains no address, so that it can be
    cached.
    """
    variant = product.index_bits if isinstance(product, BlasFunction) else product
    symbols = {"blas": product.address} if isinstance(product, BlasFunction) else {}
    ir = DeferredIr("runtime.cpu.kernels.gemm.blas_call_ir", function, (kind, variant))
    return host_jit().compile(ir, (name,), symbols, passes=passes)
