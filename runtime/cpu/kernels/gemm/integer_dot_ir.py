"""Native code of products of integer matrices, modulo the result's range: no float holds their sums."""

from __future__ import annotations

from enum import Enum
from functools import cache

from runtime.codegen.ir.record_loads import RECORD_LOADS, read
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.codegen.record import Address, Record, Word, field_names, record
from runtime.cpu.kernels.gemm.row_sums_ir import AT, RowSums, row_sums_ir
from spmd.shape import PrimitiveType

FUNCTION = "spmd_integer_dot"
#: Columns of the result that are summed at a time: with as many of each row of rhs, they stay in cache.
_COLUMNS = 256


class IntegerDotAlgorithm(Enum):
    """Algorithm by the contiguous runs of the innermost loop."""

    ROWS = "rows"
    """Rows of rhs and result: rows of rhs, times an element of lhs, are accumulated."""
    DEPTH = "depth"
    """Rows of lhs and columns of rhs are multiplied and summed."""
    ANY = "any"
    """The same, with any strides."""


@record
class IntegerDotRecord(Record):
    """Addresses; then strides in bytes between rows and between columns of each matrix."""

    lhs: Address
    rhs: Address
    result: Address
    m: Word
    n: Word
    k: Word
    lhs_down: Word
    lhs_right: Word
    rhs_down: Word
    rhs_right: Word
    out_down: Word
    out_right: Word


@cache
def integer_dot_code(
    lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, algorithm: IntegerDotAlgorithm
) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for integers of at least 8 bits, which takes an IntegerDotRecord."""
    ir = integer_dot_ir(lhs, rhs, result, algorithm)
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.UNROLL)


def integer_dot_ir(
    lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, algorithm: IntegerDotAlgorithm
) -> str:
    t = _type(result)
    names = {"a": _type(lhs), "b": _type(rhs), "t": t}
    common = RECORD_LOADS + _widening("a", lhs, result) + _widening("b", rhs, result)
    setup = read(IntegerDotRecord, *field_names(IntegerDotRecord))
    if algorithm is IntegerDotAlgorithm.ROWS:
        sums = RowSums(1, names["a"], names["b"], t, "mul", "add", widens=True)
        loops = _BY_ROWS.format(name=FUNCTION, setup=setup, columns=_COLUMNS)
        return common + row_sums_ir(sums, result.byte_size) + loops
    steps = (
        (lhs.byte_size, rhs.byte_size)
        if algorithm is IntegerDotAlgorithm.DEPTH
        else ("%lhs_right", "%rhs_down")
    )
    return (
        common
        + AT
        + _BY_DEPTH.format(
            name=FUNCTION, setup=setup, lhs_step=steps[0], rhs_step=steps[1], **names
        )
    )


def _type(kind: PrimitiveType) -> str:
    return f"i{8 * kind.byte_size}"


def _widening(name: str, kind: PrimitiveType, result: PrimitiveType) -> str:
    source, target = _type(kind), _type(result)
    if source == target:
        line = f"%y = add {source} %x, 0"
    elif kind.byte_size > result.byte_size:
        line = f"%y = trunc {source} %x to {target}"
    else:
        line = f"%y = {'sext' if kind.is_signed_integer else 'zext'} {source} %x to {target}"
    return f"""
define internal {target} @widen_{name}({source} %x) alwaysinline {{
  {line}
  ret {target} %y
}}
"""


_BY_ROWS = """
define void @{name}(ptr %record) {{
entry:
{setup}
  br label %block
block:
  %j = phi i64 [ 0, %entry ], [ %j_end, %block_done ]
  %j_full = add i64 %j, {columns}
  %j_end = call i64 @llvm.umin.i64(i64 %j_full, i64 %n)
  %count = sub i64 %j_end, %j
  %rhs_j = call ptr @at(ptr %rhs, i64 %j, i64 %rhs_right)
  %result_j = call ptr @at(ptr %result, i64 %j, i64 %out_right)
  br label %row
row:
  %i = phi i64 [ 0, %block ], [ %next_i, %row ]
  %lhs_i = call ptr @at(ptr %lhs, i64 %i, i64 %lhs_down)
  %to = call ptr @at(ptr %result_j, i64 %i, i64 %out_down)
  call void @sum_rows(ptr %lhs_i, i64 0, i64 %lhs_right, ptr %rhs_j, i64 %rhs_down, ptr %to, i64 0, i64 %k, i64 %count)
  %next_i = add i64 %i, 1
  %more_i = icmp ult i64 %next_i, %m
  br i1 %more_i, label %row, label %block_done
block_done:
  %more_j = icmp ult i64 %j_end, %n
  br i1 %more_j, label %block, label %end
end:
  ret void
}}
"""

_BY_DEPTH = """
define void @{name}(ptr %record) {{
entry:
{setup}
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %next_i, %row_done ]
  %lhs_row = call ptr @at(ptr %lhs, i64 %i, i64 %lhs_down)
  br label %column
column:
  %j = phi i64 [ 0, %row ], [ %next_j, %column_done ]
  %rhs_column = call ptr @at(ptr %rhs, i64 %j, i64 %rhs_right)
  br label %product
product:
  %d = phi i64 [ 0, %column ], [ %next_d, %product ]
  %sum = phi {t} [ 0, %column ], [ %more_sum, %product ]
  %lhs_at = call ptr @at(ptr %lhs_row, i64 %d, i64 {lhs_step})
  %rhs_at = call ptr @at(ptr %rhs_column, i64 %d, i64 {rhs_step})
  %a = load {a}, ptr %lhs_at
  %b = load {b}, ptr %rhs_at
  %x = call {t} @widen_a({a} %a)
  %y = call {t} @widen_b({b} %b)
  %p = mul {t} %x, %y
  %more_sum = add {t} %sum, %p
  %next_d = add nuw nsw i64 %d, 1
  %more_d = icmp ult i64 %next_d, %k
  br i1 %more_d, label %product, label %column_done
column_done:
  %to_row = call ptr @at(ptr %result, i64 %i, i64 %out_down)
  %to = call ptr @at(ptr %to_row, i64 %j, i64 %out_right)
  store {t} %more_sum, ptr %to
  %next_j = add i64 %j, 1
  %more_j = icmp ult i64 %next_j, %n
  br i1 %more_j, label %column, label %row_done
row_done:
  %next_i = add i64 %i, 1
  %more_i = icmp ult i64 %next_i, %m
  br i1 %more_i, label %row, label %end
end:
  ret void
}}
"""
