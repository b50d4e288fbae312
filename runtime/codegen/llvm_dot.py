"""Native code of matrix products: calls of BLAS whose arguments are words of a record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.blas import BlasFunction
from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_words import WORDS
from spmd.shape import PrimitiveType

GEMM, GEMV = "spmd_gemm", "spmd_gemv"
ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
#: Words that hold the addresses of two operands and the result.
LHS_WORD, RHS_WORD, RESULT_WORD = range(3)


@dataclass(frozen=True, slots=True)
class GemmWords:
    """result[m, n] = lhs[m, k] rhs[k, n], row-major, an operand as it lies or transposed; leading dimensions."""

    lhs: int
    rhs: int
    result: int
    m: int
    n: int
    k: int
    leading_lhs: int
    leading_rhs: int
    leading_result: int
    transpose_lhs: int
    transpose_rhs: int

    def packed(self) -> list[int]:
        sizes = [self.m, self.n, self.k, self.leading_lhs, self.leading_rhs, self.leading_result]
        transposes = [self.transpose_lhs, self.transpose_rhs]
        return [self.lhs, self.rhs, self.result, *sizes, *transposes]


@dataclass(frozen=True, slots=True)
class GemvWords:
    """result = matrix vector; the matrix lies as ``rows`` of ``columns`` elements, and is transposed if it says so.

    Steps are in elements.
    """

    matrix: int
    vector: int
    result: int
    rows: int
    columns: int
    leading: int
    transpose: int
    vector_step: int
    result_step: int

    def packed(self) -> list[int]:
        sizes = [self.rows, self.columns, self.leading, self.vector_step, self.result_step]
        return [self.matrix, self.vector, self.result, *sizes, self.transpose]


@cache
def gemm_code(kind: PrimitiveType, gemm: BlasFunction) -> NativeLibrary:
    """``GEMM`` of f32 or f64: takes the address of packed words."""
    return _compiled(_GEMM, GEMM, kind, gemm)


@cache
def gemv_code(kind: PrimitiveType, gemv: BlasFunction) -> NativeLibrary:
    return _compiled(_GEMV, GEMV, kind, gemv)


def _compiled(ir: str, name: str, kind: PrimitiveType, function: BlasFunction) -> NativeLibrary:
    narrow = "trunc i64 {} to i32" if function.index_bits == 32 else "add i64 {}, 0"
    text = ir.format(
        name=name,
        t={PrimitiveType.F32: "float", PrimitiveType.F64: "double"}[kind],
        i=f"i{function.index_bits}",
        sizes="\n".join(
            f"  %n{w}_word = call i64 @word(ptr %record, i64 {w})\n"
            f"  %n{w} = {narrow.format(f'%n{w}_word')}"
            for w in range(3, 9)
        ),
    )
    symbols = {"blas": function.address}
    return host_jit().compile(WORDS + text, (name,), symbols, level=2, unroll=False)


_GEMM = f"""
declare void @blas(i32, i32, i32, {{i}}, {{i}}, {{i}}, {{t}}, ptr, {{i}}, ptr, {{i}}, {{t}}, ptr, {{i}})

define void @{{name}}(ptr %record) {{{{
  %lhs = call ptr @pointer(ptr %record, i64 {LHS_WORD})
  %rhs = call ptr @pointer(ptr %record, i64 {RHS_WORD})
  %result = call ptr @pointer(ptr %record, i64 {RESULT_WORD})
{{sizes}}
  %transpose_lhs_word = call i64 @word(ptr %record, i64 9)
  %transpose_rhs_word = call i64 @word(ptr %record, i64 10)
  %transpose_lhs = trunc i64 %transpose_lhs_word to i32
  %transpose_rhs = trunc i64 %transpose_rhs_word to i32
  call void @blas(i32 {ROW_MAJOR}, i32 %transpose_lhs, i32 %transpose_rhs, {{i}} %n3, {{i}} %n4, {{i}} %n5,
    {{t}} 1.0, ptr %lhs, {{i}} %n6, ptr %rhs, {{i}} %n7, {{t}} 0.0, ptr %result, {{i}} %n8)
  ret void
}}}}
"""

_GEMV = f"""
declare void @blas(i32, i32, {{i}}, {{i}}, {{t}}, ptr, {{i}}, ptr, {{i}}, {{t}}, ptr, {{i}})

define void @{{name}}(ptr %record) {{{{
  %matrix = call ptr @pointer(ptr %record, i64 {LHS_WORD})
  %vector = call ptr @pointer(ptr %record, i64 {RHS_WORD})
  %result = call ptr @pointer(ptr %record, i64 {RESULT_WORD})
{{sizes}}
  %transpose = trunc i64 %n8_word to i32
  call void @blas(i32 {ROW_MAJOR}, i32 %transpose, {{i}} %n3, {{i}} %n4, {{t}} 1.0, ptr %matrix, {{i}} %n5,
    ptr %vector, {{i}} %n6, {{t}} 0.0, ptr %result, {{i}} %n7)
  ret void
}}}}
"""
