"""Native code of matrix products with arguments in a record: mostly calls of BLAS."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Value
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record, word_count
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.copy.copy_ir import FUNCTION as COPY
from runtime.cpu.kernels.copy.copy_ir import TARGET_WORD, Innermost, add_copy
from runtime.cpu.libraries.blas import BlasFunction
from spmd.shape import PrimitiveType

GEMM, GEMV, TRANSPOSING_GEMM = "spmd_gemm", "spmd_gemv", "spmd_transposing_gemm"
ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
#: Most elements of a right matrix that is transposed on the stack.
MOST_TRANSPOSED = 4096


@record
class GemmRecord(Record):
    """result[m, n] = lhs[m, k] rhs[k, n], row-major; operands may be transposed. lda, ldb, ldc: leading dimensions."""

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
    """result = matrix vector; the matrix is stored as ``rows`` rows of ``columns`` elements, and may be transposed.

    Strides are in elements.
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


#: Indices of the words with the addresses of operands and result.
LHS_WORD, RHS_WORD, RESULT_WORD = range(3)
#: Words of a product's record; those of the copy that transposes the right matrix follow.
GEMM_WORDS = word_count(GemmRecord)


@dataclass(frozen=True, slots=True)
class GemmIr:
    """IR that defines ``GEMM``, which takes a GemmRecord, and the BLAS function that it calls."""

    text: str
    blas: BlasFunction | None = None


def blas_gemm_ir(kind: PrimitiveType, gemm: BlasFunction) -> GemmIr:
    """Return IR that calls BLAS's product of f32 or f64."""
    t, i = wide_type(kind), f"i{gemm.index_bits}"
    f = FunctionWriter(GEMM, GemmRecord)
    types = f"i32, i32, i32, {i}, {i}, {i}, {t}, ptr, {i}, ptr, {i}, {t}, ptr, {i}"
    f.declare(f"declare void @blas({types})")
    rec, (one, zero) = f.record, (Value(f, t, text) for text in ("1.0", "0.0"))
    flags = [x.resized("i32") for x in (rec.transpose_lhs, rec.transpose_rhs)]
    m, n, k = (x.resized(i) for x in (rec.m, rec.n, rec.k))
    lhs, rhs, result = (
        (address, ld.resized(i))
        for address, ld in (
            (rec.lhs, rec.lda),
            (rec.rhs, rec.ldb),
            (rec.result, rec.ldc),
        )
    )
    major = f.constant(ROW_MAJOR, "i32")
    f.call("void", "blas", major, *flags, m, n, k, one, *lhs, *rhs, zero, *result)
    return GemmIr(f.end() + "\n", gemm)


@cache
def gemm_code(gemm: GemmIr) -> NativeLibrary:
    """Return the library of ``GEMM``."""
    passes = Passes.TIDY if gemm.blas is None else Passes.CALL
    return _linked(gemm.text, GEMM, gemm.blas, passes)


@cache
def transposing_gemm_code(kind: PrimitiveType, gemm: GemmIr) -> NativeLibrary:
    """Return the library of ``TRANSPOSING_GEMM``. It takes a GemmRecord, then the record of a copy of the right matrix.

    The copy makes the right matrix row-major, on the stack: small right matrices are read much faster by row.
    """
    module = Module()
    add_copy(module, Innermost.TRANSPOSE, kind.byte_size)
    f = FunctionWriter(TRANSPOSING_GEMM, module=module, parameters=("ptr",))
    (product,) = f.parameters
    transposed = f.array(MOST_TRANSPOSED, wide_type(kind))
    copy = product.element("i64", GEMM_WORDS)
    copy.element("ptr", TARGET_WORD).store(transposed)
    product.element("ptr", RHS_WORD).store(transposed)
    f.call("void", COPY, copy)
    f.call("void", GEMM, product)
    return _linked(gemm.text + f.end(), TRANSPOSING_GEMM, gemm.blas, Passes.TIDY)


@cache
def gemv_code(kind: PrimitiveType, gemv: BlasFunction) -> NativeLibrary:
    """Return the library of ``GEMV``, which takes the address of a GemvRecord."""
    t, i = wide_type(kind), f"i{gemv.index_bits}"
    f = FunctionWriter(GEMV, GemvRecord)
    f.declare(f"declare void @blas(i32, i32, {i}, {i}, {t}, ptr, {i}, ptr, {i}, {t}, ptr, {i})")
    rec, (one, zero) = f.record, (Value(f, t, text) for text in ("1.0", "0.0"))
    rows, columns, lda = (x.resized(i) for x in (rec.rows, rec.columns, rec.lda))
    flags = (f.constant(ROW_MAJOR, "i32"), rec.transpose.resized("i32"))
    vector = (rec.vector, rec.vector_step.resized(i))
    result = (rec.result, rec.result_step.resized(i))
    f.call("void", "blas", *flags, rows, columns, one, rec.matrix, lda, *vector, zero, *result)
    return _linked(f.end(), GEMV, gemv, Passes.CALL)


def _linked(ir: str, name: str, blas: BlasFunction | None, passes: Passes) -> NativeLibrary:
    symbols = {} if blas is None else {"blas": blas.address}
    return host_jit().compile(ir, (name,), symbols, passes=passes)
