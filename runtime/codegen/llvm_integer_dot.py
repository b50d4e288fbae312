"""Native code of products of integer matrices, modulo the result's range: no float holds their sums."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_words import WORDS
from spmd.shape import PrimitiveType

FUNCTION = "spmd_integer_dot"
#: Columns of the result that are summed at a time: with as many of each row of rhs, they stay in near caches.
_COLUMNS = 256
#: Rows of rhs that are added at a time.
_DEPTH = 4


class Form(Enum):
    """Which runs without gaps are walked innermost."""

    ROWS = "rows"
    """Those of rhs and result: rows of rhs, times an element of lhs, are added up."""
    DEPTH = "depth"
    """The rows of lhs and columns of rhs are multiplied and summed."""
    ANY = "any"
    """The same, with any strides."""


@dataclass(frozen=True, slots=True)
class IntegerDotWords:
    """Addresses; then bytes from row to row, and from column to column, of each matrix."""

    lhs: int
    rhs: int
    result: int
    m: int
    n: int
    k: int
    strides: tuple[tuple[int, ...], ...]

    def packed(self) -> list[int]:
        words = [self.lhs, self.rhs, self.result, self.m, self.n, self.k]
        return words + [stride for own in self.strides for stride in own]


@cache
def integer_dot_code(
    lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, form: Form
) -> NativeLibrary:
    """``FUNCTION`` for whole-byte integers: takes the address of packed words."""
    ir = integer_dot_ir(lhs, rhs, result, form)
    return host_jit().compile(ir, (FUNCTION,), level=2)


def integer_dot_ir(
    lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, form: Form
) -> str:
    t = _type(result)
    names = {"a": _type(lhs), "b": _type(rhs), "t": t}
    common = WORDS + _widening("a", lhs, result) + _widening("b", rhs, result) + _PLACE
    setup = "\n".join(
        [
            *(
                f"  %{name} = call ptr @pointer(ptr %record, i64 {w})"
                for w, name in enumerate(("lhs", "rhs", "result"))
            ),
            *(
                f"  %{name} = call i64 @word(ptr %record, i64 {3 + w})"
                for w, name in enumerate("mnk")
            ),
            *(
                f"  %{name} = call i64 @word(ptr %record, i64 {6 + w})"
                for w, name in enumerate(
                    ("lhs_down", "lhs_right", "rhs_down", "rhs_right", "out_down", "out_right")
                )
            ),
        ]
    )
    if form is Form.ROWS:
        return (
            common
            + _add_rows("add_rows", _DEPTH, names)
            + _add_rows("add_row", 1, names)
            + (
                _BY_ROWS.format(
                    name=FUNCTION,
                    setup=setup,
                    columns=_COLUMNS,
                    depth=_DEPTH,
                    size=result.byte_size,
                    **names,
                )
            )
        )
    steps = (lhs.byte_size, rhs.byte_size) if form is Form.DEPTH else ("%lhs_right", "%rhs_down")
    return common + _BY_DEPTH.format(
        name=FUNCTION, setup=setup, lhs_step=steps[0], rhs_step=steps[1], **names
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


_PLACE = """
define internal ptr @at(ptr %base, i64 %i, i64 %i_stride, i64 %j, i64 %j_stride) alwaysinline {
  %i_way = mul i64 %i, %i_stride
  %j_way = mul i64 %j, %j_stride
  %way = add i64 %i_way, %j_way
  %place = getelementptr i8, ptr %base, i64 %way
  ret ptr %place
}
"""


def _add_rows(name: str, depth: int, names: dict[str, str]) -> str:
    """total[j] += the sum of lhs[d] * rhs[d, j] for d < depth."""
    t, a, b = names["t"], names["a"], names["b"]
    lines = []
    for d in range(depth):
        lines += [
            f"  %lhs{d} = call ptr @at(ptr %lhs, i64 {d}, i64 %lhs_right, i64 0, i64 0)",
            f"  %a{d} = load {a}, ptr %lhs{d}",
            f"  %x{d} = call {t} @widen_a({a} %a{d})",
            f"  %row{d} = call ptr @at(ptr %rhs, i64 {d}, i64 %rhs_down, i64 0, i64 0)",
        ]
    body = []
    total = "%before"
    for d in range(depth):
        body += [
            f"  %at{d} = getelementptr {b}, ptr %row{d}, i64 %j",
            f"  %b{d} = load {b}, ptr %at{d}, !llvm.access.group !0",
            f"  %y{d} = call {t} @widen_b({b} %b{d})",
            f"  %p{d} = mul {t} %x{d}, %y{d}",
            f"  %sum{d} = add {t} {total}, %p{d}",
        ]
        total = f"%sum{d}"
    nl = "\n"
    return f"""
define internal void @{name}(ptr %total, ptr %lhs, i64 %lhs_right, ptr %rhs, i64 %rhs_down, i64 %count) alwaysinline {{
entry:
{nl.join(lines)}
  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total_at = getelementptr {t}, ptr %total, i64 %j
  %before = load {t}, ptr %total_at, !llvm.access.group !0
{nl.join(body)}
  store {t} {total}, ptr %total_at, !llvm.access.group !0
  %next = add nuw nsw i64 %j, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end, !llvm.loop !1
end:
  ret void
}}
"""


_BY_ROWS = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

define void @{name}(ptr %record) {{
entry:
  %total = alloca [{columns} x {t}], align 64
{setup}
  %whole = and i64 %k, -{depth}
  br label %block
block:
  %j = phi i64 [ 0, %entry ], [ %j_end, %block_done ]
  %j_full = add i64 %j, {columns}
  %j_end = call i64 @llvm.umin.i64(i64 %j_full, i64 %n)
  %count = sub i64 %j_end, %j
  %bytes = mul i64 %count, {size}
  br label %row
row:
  %i = phi i64 [ 0, %block ], [ %next_i, %row_done ]
  call void @llvm.memset.p0.i64(ptr %total, i8 0, i64 %bytes, i1 false)
  br label %some
some:
  %d = phi i64 [ 0, %row ], [ %next_d, %add_some ]
  %more_d = icmp ult i64 %d, %whole
  br i1 %more_d, label %add_some, label %single
add_some:
  %lhs_d = call ptr @at(ptr %lhs, i64 %i, i64 %lhs_down, i64 %d, i64 %lhs_right)
  %rhs_d = call ptr @at(ptr %rhs, i64 %d, i64 %rhs_down, i64 %j, i64 %rhs_right)
  call void @add_rows(ptr %total, ptr %lhs_d, i64 %lhs_right, ptr %rhs_d, i64 %rhs_down, i64 %count)
  %next_d = add i64 %d, {depth}
  br label %some
single:
  %e = phi i64 [ %whole, %some ], [ %next_e, %add_single ]
  %more_e = icmp ult i64 %e, %k
  br i1 %more_e, label %add_single, label %row_done
add_single:
  %lhs_e = call ptr @at(ptr %lhs, i64 %i, i64 %lhs_down, i64 %e, i64 %lhs_right)
  %rhs_e = call ptr @at(ptr %rhs, i64 %e, i64 %rhs_down, i64 %j, i64 %rhs_right)
  call void @add_row(ptr %total, ptr %lhs_e, i64 %lhs_right, ptr %rhs_e, i64 %rhs_down, i64 %count)
  %next_e = add i64 %e, 1
  br label %single
row_done:
  %to = call ptr @at(ptr %result, i64 %i, i64 %out_down, i64 %j, i64 %out_right)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %total, i64 %bytes, i1 false)
  %next_i = add i64 %i, 1
  %more_i = icmp ult i64 %next_i, %m
  br i1 %more_i, label %row, label %block_done
block_done:
  %more_j = icmp ult i64 %j_end, %n
  br i1 %more_j, label %block, label %end
end:
  ret void
}}

; the total is no part of the matrices, so iterations are independent
!0 = distinct !{{}}
!1 = distinct !{{!1, !2}}
!2 = !{{!"llvm.loop.parallel_accesses", !0}}
"""

_BY_DEPTH = """
define void @{name}(ptr %record) {{
entry:
{setup}
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %next_i, %row_done ]
  %lhs_row = call ptr @at(ptr %lhs, i64 %i, i64 %lhs_down, i64 0, i64 0)
  br label %column
column:
  %j = phi i64 [ 0, %row ], [ %next_j, %column_done ]
  %rhs_column = call ptr @at(ptr %rhs, i64 0, i64 0, i64 %j, i64 %rhs_right)
  br label %product
product:
  %d = phi i64 [ 0, %column ], [ %next_d, %product ]
  %sum = phi {t} [ 0, %column ], [ %more_sum, %product ]
  %lhs_at = call ptr @at(ptr %lhs_row, i64 %d, i64 {lhs_step}, i64 0, i64 0)
  %rhs_at = call ptr @at(ptr %rhs_column, i64 %d, i64 {rhs_step}, i64 0, i64 0)
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
  %to = call ptr @at(ptr %result, i64 %i, i64 %out_down, i64 %j, i64 %out_right)
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
