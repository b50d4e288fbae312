"""Native code of matrix products by BLAS or in registers, with arguments in the records of native_dot.py."""

from __future__ import annotations

from runtime.codegen.elements.builder import Value
from runtime.codegen.elements.complex_numbers import PARTS
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.cpu.kernels.copy.copy import FUNCTION as COPY
from runtime.cpu.kernels.copy.copy import TARGET_WORD, Innermost
from runtime.cpu.kernels.copy.copy_ir import add_copy
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.native_dot import (
    GEMM,
    GEMM_WORDS,
    GEMV,
    RHS_WORD,
    TRANSPOSING_GEMM,
    GemmRecord,
    GemvRecord,
    RegisterBlock,
)
from runtime.cpu.kernels.gemm.small_dot_ir import small_gemm_ir
from runtime.cpu.libraries.blas import ROW_MAJOR, gemm_parameters
from spmd.shape import PrimitiveType


def gemm_ir(kind: PrimitiveType, product: RegisterBlock | int) -> str:
    """Return IR with ``GEMM``.

    ``product`` is the register block of a small product, or, if BLAS computes it, the width of BLAS's integers in bits.
    """
    if isinstance(product, RegisterBlock):
        return small_gemm_ir(kind, product)
    i = f"i{product}"
    f = FunctionWriter(GEMM, GemmRecord)
    rec, (one, zero) = f.record, (blas_factor(f, kind, text) for text in ("1.0", "0.0"))
    f.declare(f"declare void @blas({', '.join(gemm_parameters(i, one.type))})")
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
    return f.end() + "\n"


def transposing_gemm_ir(kind: PrimitiveType, product: RegisterBlock | int) -> str:
    """Return IR with ``TRANSPOSING_GEMM`` and the ``GEMM`` that it calls (see ``transposing_gemm_code``).

    The transposed right matrix is on the function's stack. ``product`` is that of ``gemm_ir``.
    """
    module = Module()
    add_copy(module, Innermost.TRANSPOSE, kind.byte_size)
    f = FunctionWriter(TRANSPOSING_GEMM, module=module, parameters=("ptr",))
    (record,) = f.parameters
    transposed = f.array(tuning.TRANSPOSE_MOST_ELEMENTS, wide_type(kind))
    copy = record.element("i64", GEMM_WORDS)
    copy.element("ptr", TARGET_WORD).store(transposed)
    record.element("ptr", RHS_WORD).store(transposed)
    f.call("void", COPY, copy)
    f.call("void", GEMM, record)
    return gemm_ir(kind, product) + f.end()


def gemv_ir(kind: PrimitiveType, index_bits: int) -> str:
    """Return IR with ``GEMV``, which calls BLAS with integers of ``index_bits`` bits."""
    i = f"i{index_bits}"
    f = FunctionWriter(GEMV, GemvRecord)
    rec, (one, zero) = f.record, (blas_factor(f, kind, text) for text in ("1.0", "0.0"))
    t = one.type
    f.declare(f"declare void @blas(i32, i32, {i}, {i}, {t}, ptr, {i}, ptr, {i}, {t}, ptr, {i})")
    rows, columns, lda = (x.resized(i) for x in (rec.rows, rec.columns, rec.lda))
    flags = (f.constant(ROW_MAJOR, "i32"), rec.transpose.resized("i32"))
    vector = (rec.vector, rec.vector_step.resized(i))
    result = (rec.result, rec.result_step.resized(i))
    f.call("void", "blas", *flags, rows, columns, one, rec.matrix, lda, *vector, zero, *result)
    return f.end()


def blas_factor(f: FunctionWriter, kind: PrimitiveType, real: str) -> Value:
    """Return the factor ``real`` as BLAS takes it: the number, or its address if ``kind`` is complex."""
    if not kind.is_complex:
        return Value(f, wide_type(kind), real)
    part = PARTS[kind].name
    number = f.array(2, part)
    for n, text in enumerate((real, "0.0")):
        number.element(part, n).store(Value(f, part, text))
    return number
