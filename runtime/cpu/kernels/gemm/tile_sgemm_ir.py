"""cblas_sgemm on the tile unit, with its signature and about its errors, at about three times its speed.

BLAS computes small products, column-major order and other factors, blocks with numbers beyond the unit's range, and
everything if it may use so many threads that it is faster.
"""

from __future__ import annotations

from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.gemm.tile_block_ir import ONE, SCALE, UNSCALE, product_ir
from runtime.cpu.kernels.gemm.tile_record import WORD_COUNT, instead_ir
from runtime.cpu.kernels.gemm.tile_types import TileTypes
from runtime.cpu.kernels.gemm.tile_unit import TILE_THRESHOLDS, TileThresholds
from spmd.shape import PrimitiveType

FUNCTION = "spmd_tile_sgemm"
#: Most threads with which BLAS is slower than one tile unit.
_MOST_THREADS = 2


def tile_gemm_code(
    blas: int, index_bits: int, threads: int | None, thresholds: TileThresholds = TILE_THRESHOLDS
) -> NativeLibrary:
    """Return the library of ``FUNCTION``. blas: address of cblas_sgemm. threads: of its thread count function."""
    types = TileTypes(PrimitiveType.F32, PrimitiveType.F32, PrimitiveType.F32)
    index = f"i{index_bits}"
    gemm = _GEMM.format(
        name=FUNCTION,
        i=index,
        words=WORD_COUNT,
        scale=SCALE,
        unscale=UNSCALE,
        one=ONE,
        least_lines=thresholds.lines,
        least_depth=thresholds.depth,
        least_products=thresholds.products,
        widened="\n".join(
            f"  %{name}_wide = {'add i64 0,' if index_bits == 64 else 'sext i32'} %{name}"
            + ("" if index_bits == 64 else " to i64")
            for name in ("m", "n", "k", "leading_lhs", "leading_rhs", "leading_result")
        ),
        threads=_THREADS if threads is not None else "",
        few=_FEW.format(most=_MOST_THREADS) if threads is not None else "  br label %tiles",
    )
    by_blas = _BY_BLAS.format(
        i=index,
        narrowed="\n".join(
            f"  %{name}_index = {'add i64 0,' if index_bits == 64 else 'trunc i64'} %{name}"
            + ("" if index_bits == 64 else " to i32")
            for name in ("rows", "columns", "depth", "leading_lhs", "leading_rhs", "leading_result")
        ),
    )
    symbols = {"blas": blas} | ({"blas_threads": threads} if threads is not None else {})
    ir = product_ir(types, instead=True) + gemm + instead_ir(by_blas)
    return host_jit().compile(ir, (FUNCTION,), symbols, passes=Passes.TIDY)


_THREADS = "declare i32 @blas_threads()\n"

_FEW = """
  %threads = call i32 @blas_threads()
  %few = icmp sle i32 %threads, {most}
  br i1 %few, label %tiles, label %library
"""

_GEMM = """
declare void @blas(i32, i32, i32, {i}, {i}, {i}, float, ptr, {i}, ptr, {i}, float, ptr, {i})
{threads}
define void @{name}(i32 %order, i32 %transpose_lhs, i32 %transpose_rhs, {i} %m, {i} %n, {i} %k, float %alpha,
    ptr %lhs, {i} %leading_lhs, ptr %rhs, {i} %leading_rhs, float %beta, ptr %result, {i} %leading_result) {{
entry:
  %record = alloca [{words} x i64], align 64
{widened}
  %by_row = icmp eq i32 %order, 101
  %plain = fcmp oeq float %alpha, 1.0
  %sets = fcmp oeq float %beta, 0.0
  %adds = fcmp oeq float %beta, 1.0
  %known_beta = or i1 %sets, %adds
  %known_factors = and i1 %plain, %known_beta
  %known = and i1 %by_row, %known_factors
  %enough_rows = icmp sge i64 %m_wide, {least_lines}
  %enough_columns = icmp sge i64 %n_wide, {least_lines}
  %enough_depth = icmp sge i64 %k_wide, {least_depth}
  %enough_lines = and i1 %enough_rows, %enough_columns
  %enough_each = and i1 %enough_lines, %enough_depth
  %elements = mul i64 %m_wide, %n_wide
  %products = mul i64 %elements, %k_wide
  %enough_products = icmp sge i64 %products, {least_products}
  %enough = and i1 %enough_each, %enough_products
  %gains = and i1 %known, %enough
  br i1 %gains, label %ask, label %library
ask:
{few}
library:
  call void @blas(i32 %order, i32 %transpose_lhs, i32 %transpose_rhs, {i} %m, {i} %n, {i} %k, float %alpha,
    ptr %lhs, {i} %leading_lhs, ptr %rhs, {i} %leading_rhs, float %beta, ptr %result, {i} %leading_result)
  ret void
tiles:
  %lhs_lies = icmp eq i32 %transpose_lhs, 111
  %rhs_lies = icmp eq i32 %transpose_rhs, 111
  %lhs_bytes = shl i64 %leading_lhs_wide, 2
  %rhs_bytes = shl i64 %leading_rhs_wide, 2
  %row_bytes = shl i64 %leading_result_wide, 2
  %lhs_line = select i1 %lhs_lies, i64 %lhs_bytes, i64 4
  %lhs_depth = select i1 %lhs_lies, i64 4, i64 %lhs_bytes
  %rhs_line = select i1 %rhs_lies, i64 4, i64 %rhs_bytes
  %rhs_depth = select i1 %rhs_lies, i64 %rhs_bytes, i64 4
  %adds_word = zext i1 %adds to i64
  %w1 = getelementptr i64, ptr %record, i64 1
  %w2 = getelementptr i64, ptr %record, i64 2
  %w3 = getelementptr i64, ptr %record, i64 3
  %w4 = getelementptr i64, ptr %record, i64 4
  %w5 = getelementptr i64, ptr %record, i64 5
  %w6 = getelementptr i64, ptr %record, i64 6
  %w7 = getelementptr i64, ptr %record, i64 7
  %w8 = getelementptr i64, ptr %record, i64 8
  %w9 = getelementptr i64, ptr %record, i64 9
  %w10 = getelementptr i64, ptr %record, i64 10
  %w11 = getelementptr i64, ptr %record, i64 11
  store ptr %lhs, ptr %record
  store ptr %rhs, ptr %w1
  store ptr %result, ptr %w2
  store i64 %m_wide, ptr %w3
  store i64 %n_wide, ptr %w4
  store i64 %k_wide, ptr %w5
  store i64 %lhs_line, ptr %w6
  store i64 %lhs_depth, ptr %w7
  store i64 %rhs_line, ptr %w8
  store i64 %rhs_depth, ptr %w9
  store i64 %row_bytes, ptr %w10
  store i64 %adds_word, ptr %w11
  %done = call i1 @product(ptr %record, float {scale}, float {unscale}, i1 true)
  ret void
}}
"""

_BY_BLAS = """  %lhs_i = mul i64 %i, %lhs_line
  %lhs_d = mul i64 %d, %lhs_depth
  %lhs_way = add i64 %lhs_i, %lhs_d
  %lhs_at = getelementptr i8, ptr %lhs, i64 %lhs_way
  %rhs_j = mul i64 %j, %rhs_line
  %rhs_d = mul i64 %d, %rhs_depth
  %rhs_way = add i64 %rhs_j, %rhs_d
  %rhs_at = getelementptr i8, ptr %rhs, i64 %rhs_way
  %out_i = mul i64 %i, %out_row
  %out_at_i = getelementptr i8, ptr %out, i64 %out_i
  %out_at = getelementptr float, ptr %out_at_i, i64 %j
  %lhs_lies = icmp eq i64 %lhs_depth, 4
  %rhs_lies = icmp eq i64 %rhs_line, 4
  %lhs_step = select i1 %lhs_lies, i64 %lhs_line, i64 %lhs_depth
  %rhs_step = select i1 %rhs_lies, i64 %rhs_depth, i64 %rhs_line
  %transpose_lhs = select i1 %lhs_lies, i32 111, i32 112
  %transpose_rhs = select i1 %rhs_lies, i32 111, i32 112
  %leading_lhs = lshr i64 %lhs_step, 2
  %leading_rhs = lshr i64 %rhs_step, 2
  %leading_result = lshr i64 %out_row, 2
{narrowed}
  %beta = select i1 %add, float 1.0, float 0.0
  call void @blas(i32 101, i32 %transpose_lhs, i32 %transpose_rhs, {i} %rows_index, {i} %columns_index,
    {i} %depth_index, float 1.0, ptr %lhs_at, {i} %leading_lhs_index, ptr %rhs_at, {i} %leading_rhs_index,
    float %beta, ptr %out_at, {i} %leading_result_index)
  ret void
"""
