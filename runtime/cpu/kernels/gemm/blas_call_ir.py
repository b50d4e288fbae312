"""Native code of matrix products whose arguments are words of a record: calls of BLAS, mostly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record_words import WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.copy.copy_ir import FUNCTION as COPY
from runtime.cpu.kernels.copy.copy_ir import TARGET_WORD, Innermost, add_copy
from runtime.cpu.libraries.blas import BlasFunction
from spmd.shape import PrimitiveType

GEMM, GEMV, TURNING_GEMM = "spmd_gemm", "spmd_gemv", "spmd_turning_gemm"
ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
#: Words that hold the addresses of two operands and the result.
LHS_WORD, RHS_WORD, RESULT_WORD = range(3)
#: Elements of a right matrix at most that is turned on the stack.
MOST_TURNED = 4096
#: Words of a product by themselves; those of the copy that turns the right matrix follow.
GEMM_WORDS = 11


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


@dataclass(frozen=True, slots=True)
class GemmIr:
    """IR that defines ``GEMM``, which takes the address of packed words, after WORDS; and BLAS's function in it."""

    text: str
    blas: BlasFunction | None = None


def blas_gemm_ir(kind: PrimitiveType, gemm: BlasFunction) -> GemmIr:
    """Return IR that calls BLAS's product of f32 or f64."""
    return GemmIr(_ir(_GEMM, GEMM, kind, gemm), gemm)


@cache
def gemm_code(gemm: GemmIr) -> NativeLibrary:
    """``GEMM``."""
    passes = Passes.TIDY if gemm.blas is None else Passes.CALL
    return _linked(gemm.text, GEMM, gemm.blas, passes)


@cache
def turning_gemm_code(kind: PrimitiveType, gemm: GemmIr) -> NativeLibrary:
    """``TURNING_GEMM``: takes the words of a product, then those of a copy that lays the right matrix out by row.

    Small right matrices are read much faster by row than by column. The copy's target is on the stack.
    """
    turn = Module()
    add_copy(turn, Innermost.TRANSPOSE, kind.byte_size)
    ir = _TURNING_GEMM.format(
        name=TURNING_GEMM, gemm=GEMM, copy=COPY, t=_type(kind), size=MOST_TURNED
    )
    return _linked(turn.text() + gemm.text + ir, TURNING_GEMM, gemm.blas, Passes.TIDY)


@cache
def gemv_code(kind: PrimitiveType, gemv: BlasFunction) -> NativeLibrary:
    return _linked(_ir(_GEMV, GEMV, kind, gemv), GEMV, gemv, Passes.CALL)


def _linked(ir: str, name: str, blas: BlasFunction | None, passes: Passes) -> NativeLibrary:
    symbols = {} if blas is None else {"blas": blas.address}
    return host_jit().compile(WORDS + ir, (name,), symbols, passes=passes)


def _type(kind: PrimitiveType) -> str:
    return {PrimitiveType.F32: "float", PrimitiveType.F64: "double"}[kind]


def _ir(ir: str, name: str, kind: PrimitiveType, function: BlasFunction) -> str:
    narrow = "trunc i64 {} to i32" if function.index_bits == 32 else "add i64 {}, 0"
    return ir.format(
        name=name,
        t=_type(kind),
        i=f"i{function.index_bits}",
        sizes="\n".join(
            f"  %n{w}_word = call i64 @word(ptr %record, i64 {w})\n"
            f"  %n{w} = {narrow.format(f'%n{w}_word')}"
            for w in range(3, 9)
        ),
    )


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

_TURNING_GEMM = f"""
define void @{{name}}(ptr %record) {{{{
  %turned = alloca [{{size}} x {{t}}], align 64
  %copy = getelementptr i64, ptr %record, i64 {GEMM_WORDS}
  %target_slot = getelementptr ptr, ptr %copy, i64 {TARGET_WORD}
  %rhs_slot = getelementptr ptr, ptr %record, i64 {RHS_WORD}
  store ptr %turned, ptr %target_slot
  store ptr %turned, ptr %rhs_slot
  call void @{{copy}}(ptr %copy)
  call void @{{gemm}}(ptr %record)
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
