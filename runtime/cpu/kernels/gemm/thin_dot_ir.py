"""Native code of products of a few rows and a large matrix, which is read once and not packed."""

from __future__ import annotations

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.record_loads import RECORD_LOADS
from runtime.codegen.record import field_names
from runtime.cpu.kernels.gemm.row_sums_ir import AT, RowSums, row_sums_ir
from runtime.cpu.kernels.gemm.thin_dot import FUNCTION, ThinDotRecord
from spmd.shape import PrimitiveType

#: Columns of the result that are summed at a time: with all rows they stay in the L1 cache.
_COLUMNS = 512


def thin_dot_ir(kind: PrimitiveType, rows: int, by_row: bool) -> str:
    t = {PrimitiveType.F32: "float", PrimitiveType.F64: "double"}[kind]
    multiply = _by_row if by_row else _by_column
    f = FunctionWriter(FUNCTION, ThinDotRecord)
    f.call("void", "multiply", *(getattr(f.record, name) for name in field_names(ThinDotRecord)))
    return RECORD_LOADS + f.end() + multiply(t, kind.byte_size, rows)


_PARAMETERS = """ptr %lhs, ptr %rhs, ptr %result, i64 %n, i64 %k, i64 %lhs_stride,
    i64 %rhs_stride, i64 %result_row, i64 %result_column"""


def _by_row(t: str, size: int, rows: int) -> str:
    """Write the product by blocks of columns: rows of rhs, times elements of lhs, are added to rows of the result."""
    sums = RowSums(rows, t, t, t, "fmul contract", "fadd contract")
    loop = _BY_ROW.format(parameters=_PARAMETERS, size=size, columns=_COLUMNS)
    return row_sums_ir(sums, size) + loop


_BY_ROW = """
define internal void @multiply({parameters}) {{
entry:
  br label %block
block:
  %j = phi i64 [ 0, %entry ], [ %j_end, %block ]
  %j_full = add i64 %j, {columns}
  %j_end = call i64 @llvm.umin.i64(i64 %j_full, i64 %n)
  %count = sub i64 %j_end, %j
  %to = call ptr @at(ptr %result, i64 %j, i64 {size})
  %rhs_j = call ptr @at(ptr %rhs, i64 %j, i64 {size})
  call void @sum_rows(ptr %lhs, i64 %lhs_stride, i64 {size}, ptr %rhs_j, i64 %rhs_stride, ptr %to,
    i64 %result_row, i64 %k, i64 %count)
  %more_j = icmp ult i64 %j_end, %n
  br i1 %more_j, label %block, label %end
end:
  ret void
}}
"""


def _by_column(t: str, size: int, rows: int) -> str:
    """Write the product by columns of rhs: its products with all rows of lhs are summed in vectors."""
    lines = [AT, f"define internal void @multiply({_PARAMETERS}) {{", "entry:"]
    lines += [f"  %lhs{r} = call ptr @at(ptr %lhs, i64 {r}, i64 %lhs_stride)" for r in range(rows)]
    lines += [
        "  br label %column",
        "column:",
        "  %j = phi i64 [ 0, %entry ], [ %next_j, %column_done ]",
        "  %from = call ptr @at(ptr %rhs, i64 %j, i64 %rhs_stride)",
        "  %to = call ptr @at(ptr %result, i64 %j, i64 %result_column)",
        "  br label %product",
        "product:",
        "  %d = phi i64 [ 0, %column ], [ %next_d, %product ]",
        *(f"  %s{r} = phi {t} [ 0.0, %column ], [ %t{r}, %product ]" for r in range(rows)),
        f"  %b_at = getelementptr {t}, ptr %from, i64 %d",
        f"  %b = load {t}, ptr %b_at",
    ]
    for r in range(rows):
        lines += [
            f"  %a_at{r} = getelementptr {t}, ptr %lhs{r}, i64 %d",
            f"  %a{r} = load {t}, ptr %a_at{r}",
            f"  %p{r} = fmul contract reassoc {t} %a{r}, %b",
            f"  %t{r} = fadd contract reassoc {t} %s{r}, %p{r}",
        ]
    lines += [
        "  %next_d = add nuw nsw i64 %d, 1",
        "  %more_d = icmp ult i64 %next_d, %k",
        "  br i1 %more_d, label %product, label %column_done",
        "column_done:",
    ]
    for r in range(rows):
        lines += [
            f"  %to{r} = call ptr @at(ptr %to, i64 {r}, i64 %result_row)",
            f"  store {t} %t{r}, ptr %to{r}",
        ]
    lines += [
        "  %next_j = add i64 %j, 1",
        "  %more_j = icmp ult i64 %next_j, %n",
        "  br i1 %more_j, label %column, label %end",
        "end:",
        "  ret void\n}",
    ]
    return "\n".join(lines)
