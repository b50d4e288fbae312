"""LLVM IR of product rows as sums of rows of the right matrix, times elements of the left one, without packing."""

from __future__ import annotations

from dataclasses import dataclass

#: Rows of rhs that are added at a time.
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class RowSums:
    """Number of result rows that are summed at a time, and LLVM's types and operations.

    Elements are stored as ``lhs`` and ``rhs``; ``@widen_a`` and ``@widen_b`` convert them to ``total``, if they differ.
    """

    rows: int
    lhs: str
    rhs: str
    total: str
    multiply: str
    add: str
    widens: bool = False


def row_sums_ir(sums: RowSums, total_bytes: int) -> str:
    """Return ``@at``, which moves an address by strides, and ``@sum_rows``: result[r, j] = sum of lhs[r, d] rhs[d, j].

    The sum is over d < k; strides are in bytes. Rows of rhs and result are contiguous; ``count`` columns of all rows
    should fit in cache.
    """
    clears = "\n".join(
        f"  %clear{r} = call ptr @at(ptr %result, i64 {r}, i64 %result_row)\n"
        f"  call void @llvm.memset.p0.i64(ptr %clear{r}, i8 0, i64 %bytes, i1 false)"
        for r in range(sums.rows)
    )
    loop = _LOOP.format(size=total_bytes, depth=_DEPTH, clears=clears)
    return AT + _add_rows("add_rows", sums, _DEPTH) + _add_rows("add_row", sums, 1) + loop


AT = """
define internal ptr @at(ptr %base, i64 %number, i64 %stride) alwaysinline {
  %way = mul i64 %number, %stride
  %address = getelementptr i8, ptr %base, i64 %way
  ret ptr %address
}
"""


def _add_rows(name: str, sums: RowSums, depth: int) -> str:
    """Return the function result[r, j] += sum of lhs[r, d] * rhs[d, j] for d < depth."""
    t, nl = sums.total, "\n"
    lines = [f"  %row{d} = call ptr @at(ptr %rhs, i64 {d}, i64 %rhs_step)" for d in range(depth)]
    body = []
    for d in range(depth):
        body += [
            f"  %from{d} = getelementptr {sums.rhs}, ptr %row{d}, i64 %j",
            f"  %stored_b{d} = load {sums.rhs}, ptr %from{d}, !llvm.access.group !0",
            _widened(f"%b{d}", f"%stored_b{d}", "b", sums.rhs, sums),
        ]
    for r in range(sums.rows):
        lines.append(f"  %left{r} = call ptr @at(ptr %lhs, i64 {r}, i64 %lhs_row)")
        lines.append(f"  %to{r} = call ptr @at(ptr %result, i64 {r}, i64 %result_row)")
        body.append(f"  %at{r} = getelementptr {t}, ptr %to{r}, i64 %j")
        body.append(f"  %s{r}_0 = load {t}, ptr %at{r}, !llvm.access.group !0")
        for d in range(depth):
            lines += [
                f"  %left{r}_{d} = call ptr @at(ptr %left{r}, i64 {d}, i64 %lhs_step)",
                f"  %stored_a{r}_{d} = load {sums.lhs}, ptr %left{r}_{d}",
                _widened(f"%a{r}_{d}", f"%stored_a{r}_{d}", "a", sums.lhs, sums),
            ]
            body += [
                f"  %p{r}_{d} = {sums.multiply} {t} %a{r}_{d}, %b{d}",
                f"  %s{r}_{d + 1} = {sums.add} {t} %s{r}_{d}, %p{r}_{d}",
            ]
        body.append(f"  store {t} %s{r}_{depth}, ptr %at{r}, !llvm.access.group !0")
    return f"""
define internal void @{name}(ptr %lhs, i64 %lhs_row, i64 %lhs_step, ptr %rhs, i64 %rhs_step, ptr %result,
    i64 %result_row, i64 %count) alwaysinline {{
entry:
{nl.join(lines)}
  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %next, %loop ]
{nl.join(body)}
  %next = add nuw nsw i64 %j, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end, !llvm.loop !1
end:
  ret void
}}
"""


def _widened(name: str, value: str, which: str, stored: str, sums: RowSums) -> str:
    if sums.widens:
        return f"  {name} = call {sums.total} @widen_{which}({stored} {value})"
    return f"  {name} = bitcast {stored} {value} to {sums.total}"


_LOOP = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

define internal void @sum_rows(ptr %lhs, i64 %lhs_row, i64 %lhs_step, ptr %rhs, i64 %rhs_step, ptr %result,
    i64 %result_row, i64 %k, i64 %count) {{
entry:
  %full = and i64 %k, -{depth}
  %bytes = mul i64 %count, {size}
{clears}
  br label %some
some:
  %d = phi i64 [ 0, %entry ], [ %next_d, %add_some ]
  %more_d = icmp ult i64 %d, %full
  br i1 %more_d, label %add_some, label %single
add_some:
  %lhs_d = call ptr @at(ptr %lhs, i64 %d, i64 %lhs_step)
  %rhs_d = call ptr @at(ptr %rhs, i64 %d, i64 %rhs_step)
  call void @add_rows(ptr %lhs_d, i64 %lhs_row, i64 %lhs_step, ptr %rhs_d, i64 %rhs_step, ptr %result,
    i64 %result_row, i64 %count)
  %next_d = add i64 %d, {depth}
  br label %some
single:
  %e = phi i64 [ %full, %some ], [ %next_e, %add_single ]
  %more_e = icmp ult i64 %e, %k
  br i1 %more_e, label %add_single, label %end
add_single:
  %lhs_e = call ptr @at(ptr %lhs, i64 %e, i64 %lhs_step)
  %rhs_e = call ptr @at(ptr %rhs, i64 %e, i64 %rhs_step)
  call void @add_row(ptr %lhs_e, i64 %lhs_row, i64 %lhs_step, ptr %rhs_e, i64 %rhs_step, ptr %result,
    i64 %result_row, i64 %count)
  %next_e = add i64 %e, 1
  br label %single
end:
  ret void
}}

; rows of the result lie apart from each other and from the operands, so iterations are independent
!0 = distinct !{{}}
!1 = distinct !{{!1, !2}}
!2 = !{{!"llvm.loop.parallel_accesses", !0}}
"""
