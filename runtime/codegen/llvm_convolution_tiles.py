"""Products of f32 matrices on the tile unit as pieces of IR for convolutions, which feed it from where numbers lie.

Numbers are split as those of matrix products are (see llvm_tiles, llvm_tile_product), but by pairs of neighbours along
the depth, and what is too large for that shows in ``@most`` bits, which hold the largest magnitude so far: from 2^32 on
a sum of scaled products might not be finite.
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.codegen.llvm_tile_pack import TURN
from runtime.codegen.llvm_tile_product import SCALE, UNSCALE
from runtime.codegen.llvm_tiles import (
    BLOCK_ROW,
    DECLARATIONS,
    LINES,
    TileForm,
    lanes_below,
    repeated,
    spread,
)
from spmd.shape import PrimitiveType

FORM = TileForm(PrimitiveType.F32, PrimitiveType.F32, PrimitiveType.F32)
PARTS = FORM.parts
#: Bits of 2^32: the least magnitude that is too large.
TOO_LARGE = 0x4F800000
#: What ``@split`` gives.
SPLIT = "{<16 x i32>, <16 x i32>, <16 x i32>}"

_HELPERS = f"""
declare void @llvm.x86.{FORM.instruction}(i8, i8, i8)
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
declare <16 x float> @llvm.masked.gather.v16f32.v16p0(<16 x ptr>, i32, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32, <16 x i1>)
declare void @llvm.masked.scatter.v16f32.v16p0(<16 x float>, <16 x ptr>, i32, <16 x i1>)
declare void @llvm.masked.store.v16i32.p0(<16 x i32>, ptr, i32, <16 x i1>)
declare void @llvm.masked.store.v32i16.p0(<32 x i16>, ptr, i32, <32 x i1>)
declare <16 x i32> @llvm.umax.v16i32(<16 x i32>, <16 x i32>)
declare i32 @llvm.vector.reduce.umax.v16i32(<16 x i32>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; lanes 0 .. %count - 1, none where that is negative
define internal <16 x i1> @lanes(i64 %count) alwaysinline {{
  %most = call i64 @llvm.umin.i64(i64 %count, i64 16)
  %negative = icmp slt i64 %count, 0
  %given = select i1 %negative, i64 0, i64 %most
{lanes_below("mask", "%given")}
  ret <16 x i1> %mask
}}

define internal <16 x float> @loaded(ptr %from, <16 x i1> %mask) alwaysinline {{
  %value = call <16 x float> @llvm.masked.load.v16f32.p0(
    ptr %from, i32 4, <16 x i1> %mask, <16 x float> zeroinitializer)
  ret <16 x float> %value
}}

; 16 places %stride bytes apart
define internal <16 x ptr> @apart(ptr %first, i64 %stride) alwaysinline {{
{spread("all", "%stride", "i64")}
  %ways = mul <16 x i64> %all, <{", ".join(f"i64 {i}" for i in range(16))}>
  %places = getelementptr i8, ptr %first, <16 x i64> %ways
  ret <16 x ptr> %places
}}

define internal <16 x float> @gathered(ptr %from, i64 %stride, <16 x i1> %mask) alwaysinline {{
  %places = call <16 x ptr> @apart(ptr %from, i64 %stride)
  %value = call <16 x float> @llvm.masked.gather.v16f32.v16p0(
    <16 x ptr> %places, i32 4, <16 x i1> %mask, <16 x float> zeroinitializer)
  ret <16 x float> %value
}}
"""

#: Whether ``@most`` (16 magnitudes' bits, the largest that was split in each lane) is within bounds.
_WITHIN = f"""
define internal i1 @within(ptr %most) alwaysinline {{
  %lanes = load <16 x i32>, ptr %most
  %largest = call i32 @llvm.vector.reduce.umax.v16i32(<16 x i32> %lanes)
  %is_within = icmp ult i32 %largest, {TOO_LARGE}
  ret i1 %is_within
}}
"""


def or_otherwise_ir(function: str, words: Callable[..., str]) -> str:
    """``function``: ``@convolve``; where numbers are too large for that, what the record says to call otherwise.

    ``words``: lines that read the record's words of these names.
    """
    return f"""
define void @{function}(ptr %record) {{
entry:
  %is_right = call i1 @convolve(ptr %record)
  br i1 %is_right, label %end, label %too_large
too_large:
{words("otherwise", "otherwise_record")}
  call void %otherwise(ptr %otherwise_record)
  br label %end
end:
  ret void
}}
"""


def _split() -> str:
    """``@split``: two vectors of f32 to three of pairs of bf16, the first one's in the low halves."""
    lines = [
        f"define internal {SPLIT}",
        "    @split(<16 x float> %x0, <16 x float> %x1, ptr %most) alwaysinline {",
        "  %before = load <16 x i32>, ptr %most",
    ]
    for i in range(2):
        lines += [
            f"  %bits{i} = bitcast <16 x float> %x{i} to <16 x i32>",
            f"  %size{i} = and <16 x i32> %bits{i}, {repeated(0x7FFFFFFF, 'i32')}",
            f"  %rest0{i} = fmul <16 x float> %x{i}, {repeated(SCALE, 'float')}",
        ]
    lines += [
        "  %sizes = call <16 x i32> @llvm.umax.v16i32(<16 x i32> %size0, <16 x i32> %size1)",
        "  %after = call <16 x i32> @llvm.umax.v16i32(<16 x i32> %before, <16 x i32> %sizes)",
        "  store <16 x i32> %after, ptr %most",
    ]
    for part in range(PARTS):
        for i in range(2):
            lines.append(f"  %b{part}{i} = bitcast <16 x float> %rest{part}{i} to <16 x i32>")
            rounding = 0x8000 if part < PARTS - 1 else 0  # the last part is exact
            lines += [
                f"  %r{part}{i} = add <16 x i32> %b{part}{i}, {repeated(rounding, 'i32')}",
                f"  %high{part}{i} = and <16 x i32> %r{part}{i}, {repeated(-65536, 'i32')}",
                f"  %value{part}{i} = bitcast <16 x i32> %high{part}{i} to <16 x float>",
                f"  %rest{part + 1}{i} = fsub <16 x float> %rest{part}{i}, %value{part}{i}",
            ]
        lines += [
            f"  %low{part} = lshr <16 x i32> %r{part}0, {repeated(16, 'i32')}",
            f"  %pair{part} = or <16 x i32> %low{part}, %high{part}1",
        ]
    lines += [
        f"  %s0 = insertvalue {SPLIT} poison, <16 x i32> %pair0, 0",
        f"  %s1 = insertvalue {SPLIT} %s0, <16 x i32> %pair1, 1",
        f"  %s2 = insertvalue {SPLIT} %s1, <16 x i32> %pair2, 2",
        f"  ret {SPLIT} %s2",
        "}\n",
    ]
    return "\n".join(lines)


def _multiply(rows: int, columns: int) -> str:
    """``@multiply{rows}{columns}``: that many tiles of sums of ``%steps`` products, to ``%total`` [32, 32].

    Both operands' tiles lie ``row`` bytes from row to row, ``tile`` from tile to tile and ``part`` from part to part;
    where those of each step begin says a table of bytes.
    """
    lines = [
        f"define internal void @multiply{rows}{columns}(ptr %a, i64 %a_row, i64 %a_tile, i64 %a_part, ptr %a_steps,",
        "    ptr %b, i64 %b_row, i64 %b_tile, i64 %b_part, ptr %b_steps, i64 %steps, ptr %total) noinline {",
        "entry:",
        *(
            f"  call void @llvm.x86.tilezero(i8 {2 * r + c})"
            for r in range(rows)
            for c in range(columns)
        ),
        "  br label %loop",
        "loop:",
        "  %s = phi i64 [ 0, %entry ], [ %next, %loop ]",
    ]
    for side, count in (("a", rows), ("b", columns)):
        lines += [
            f"  %{side}_place = getelementptr i64, ptr %{side}_steps, i64 %s",
            f"  %{side}_offset = load i64, ptr %{side}_place",
            f"  %{side}00 = getelementptr i8, ptr %{side}, i64 %{side}_offset",
        ]
        for part in range(PARTS):
            if part:
                lines.append(
                    f"  %{side}{part}0 = getelementptr i8, ptr %{side}{part - 1}0, i64 %{side}_part"
                )
            if count == 2:
                lines.append(
                    f"  %{side}{part}1 = getelementptr i8, ptr %{side}{part}0, i64 %{side}_tile"
                )
    held: dict[str, int | None] = {"a": None, "b": None}
    for left, right in FORM.products:
        for side, part, count, register in (("a", left, rows, 4), ("b", right, columns, 6)):
            if held[side] != part:
                lines += [
                    f"  call void @llvm.x86.tileloadd64(i8 {register + i}, ptr %{side}{part}{i}, i64 %{side}_row)"
                    for i in range(count)
                ]
            held[side] = part
        lines += [
            f"  call void @llvm.x86.{FORM.instruction}(i8 {2 * r + c}, i8 {4 + r}, i8 {6 + c})"
            for r in range(rows)
            for c in range(columns)
        ]
    lines += [
        "  %next = add nuw i64 %s, 1",
        "  %more = icmp ult i64 %next, %steps",
        "  br i1 %more, label %loop, label %end",
        "end:",
    ]
    for r in range(rows):
        for c in range(columns):
            lines += [
                f"  %t{r}{c} = getelementptr i8, ptr %total, i64 {r * LINES * BLOCK_ROW + c * 64}",
                f"  call void @llvm.x86.tilestored64(i8 {2 * r + c}, ptr %t{r}{c}, i64 {BLOCK_ROW})",
            ]
    return "\n".join([*lines, "  ret void", "}\n"])


def _each_row(work: str) -> str:
    """Blocks to the end: ``work`` for each row %r that has a place, %to0 in the result; it ends in block %row_done."""
    return f"""loop:
  %r = phi i64 [ 0, %entry ], [ %next, %row_done ]
  %place = getelementptr i64, ptr %places, i64 %r
  %offset = load i64, ptr %place
  %nowhere = icmp slt i64 %offset, 0
  br i1 %nowhere, label %row_done, label %row
row:
  %to0 = getelementptr i8, ptr %out, i64 %offset
{work}row_done:
  %next = add nuw i64 %r, 1
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %loop, label %end
end:
  ret void"""


#: Sums, to neighbouring columns or to such that lie apart.
_FINISH_ROW = f"""  %right_way = mul i64 %stride, 16
  %to1 = getelementptr i8, ptr %to0, i64 %right_way
  %from0 = getelementptr [128 x i8], ptr %total, i64 %r
  %from1 = getelementptr i8, ptr %from0, i64 64
  %sum0 = load <16 x float>, ptr %from0, align 64
  %sum1 = load <16 x float>, ptr %from1, align 64
  %scaled0 = fmul <16 x float> %sum0, {repeated(UNSCALE, "float")}
  %scaled1 = fmul <16 x float> %sum1, {repeated(UNSCALE, "float")}
  br i1 %dense, label %neighbours, label %strided
strided:
  call void @finish_apart(ptr %to0, i64 %stride, <16 x float> %scaled0, <16 x i1> %old0, <16 x i1> %mask0)
  call void @finish_apart(ptr %to1, i64 %stride, <16 x float> %scaled1, <16 x i1> %old1, <16 x i1> %mask1)
  br label %row_done
neighbours:
  %before0 = call <16 x float> @loaded(ptr %to0, <16 x i1> %old0)
  %before1 = call <16 x float> @loaded(ptr %to1, <16 x i1> %old1)
  %new0 = fadd <16 x float> %scaled0, %before0
  %new1 = fadd <16 x float> %scaled1, %before1
  call void @llvm.masked.store.v16f32.p0(<16 x float> %new0, ptr %to0, i32 4, <16 x i1> %mask0)
  call void @llvm.masked.store.v16f32.p0(<16 x float> %new1, ptr %to1, i32 4, <16 x i1> %mask1)
  br label %row_done
"""

_FETCH_ROW = """  %to1 = getelementptr i8, ptr %to0, i64 %last
  call void @llvm.prefetch.p0(ptr %to0, i32 0, i32 2, i32 1)
  call void @llvm.prefetch.p0(ptr %to1, i32 0, i32 2, i32 1)
  br label %row_done
"""

#: ``@product``: a block of sums, 32 by 32 at most, written to rows whose places a table says (-1: nowhere).
_PRODUCT = (
    f"""
; one row of sums whose columns lie %stride bytes apart
define internal void @finish_apart(
    ptr %to, i64 %stride, <16 x float> %sum, <16 x i1> %old, <16 x i1> %mask) alwaysinline {{
  %before = call <16 x float> @gathered(ptr %to, i64 %stride, <16 x i1> %old)
  %new = fadd <16 x float> %sum, %before
  %places = call <16 x ptr> @apart(ptr %to, i64 %stride)
  call void @llvm.masked.scatter.v16f32.v16p0(<16 x float> %new, <16 x ptr> %places, i32 4, <16 x i1> %mask)
  ret void
}}

define internal void @finish(
    ptr %total, ptr %out, i64 %stride, ptr %places, i64 %rows, i64 %columns, i1 %adds) noinline {{
entry:
  %dense = icmp eq i64 %stride, 4
  %mask0 = call <16 x i1> @lanes(i64 %columns)
  %right = sub i64 %columns, 16
  %mask1 = call <16 x i1> @lanes(i64 %right)
{spread("all", "%adds", "i1")}
  %old0 = and <16 x i1> %mask0, %all
  %old1 = and <16 x i1> %mask1, %all
  br label %loop
{_each_row(_FINISH_ROW)}
}}

; lines of the sums' places come to the second-level cache while products are made
define internal void @fetch(ptr %out, ptr %places, i64 %rows, i64 %columns) alwaysinline {{
entry:
  %bytes = shl i64 %columns, 2
  %last = sub i64 %bytes, 4
  br label %loop
{_each_row(_FETCH_ROW)}
}}

define internal void @product(ptr %a, i64 %a_row, i64 %a_tile, i64 %a_part, ptr %a_steps,
    ptr %b, i64 %b_row, i64 %b_tile, i64 %b_part, ptr %b_steps, i64 %steps, ptr %total,
    ptr %out, i64 %stride, ptr %places, i64 %rows, i64 %columns, i1 %adds) alwaysinline {{
entry:
  %rows_here = call i64 @llvm.umin.i64(i64 %rows, i64 32)
  %columns_here = call i64 @llvm.umin.i64(i64 %columns, i64 32)
  %two_rows = icmp ugt i64 %rows, 16
  %two_columns = icmp ugt i64 %columns, 16
  %dense = icmp eq i64 %stride, 4
  br i1 %dense, label %neighbours, label %choose
neighbours:
  call void @fetch(ptr %out, ptr %places, i64 %rows_here, i64 %columns_here)
  br label %choose
choose:
  br i1 %two_rows, label %r2, label %r1
r2:
  br i1 %two_columns, label %r2c2, label %r2c1
r1:
  br i1 %two_columns, label %r1c2, label %r1c1
"""
    + "".join(
        f"""
r{r}c{c}:
  call void @multiply{r}{c}(ptr %a, i64 %a_row, i64 %a_tile, i64 %a_part, ptr %a_steps,
    ptr %b, i64 %b_row, i64 %b_tile, i64 %b_part, ptr %b_steps, i64 %steps, ptr %total)
  br label %done
"""
        for r in (1, 2)
        for c in (1, 2)
    )
    + """
done:
  call void @finish(ptr %total, ptr %out, i64 %stride, ptr %places, i64 %rows_here, i64 %columns_here, i1 %adds)
  ret void
}
"""
)

TILES = "".join(
    [
        *(DECLARATIONS, _HELPERS, _WITHIN, _split(), TURN),
        *(_multiply(r, c) for r in (1, 2) for c in (1, 2)),
        _PRODUCT,
    ]
)
