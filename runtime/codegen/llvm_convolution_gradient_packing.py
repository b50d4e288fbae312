"""What a kernel's gradient on the tile unit reads, laid out for it: positions of x as tiles, images of w as planes.

Pieces of IR for llvm_convolution_gradient, whose record they read.
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.codegen.llvm_convolution_tiles import FORM, PARTS, SPLIT
from runtime.codegen.llvm_tiles import TILE_BYTES
from runtime.codegen.llvm_words import again

#: Words of a panel before its phases' ones.
PANEL_WORDS = 4


def packing_ir(words: Callable[..., str]) -> str:
    """``@pack_left`` and ``@load_plane``; ``words``: lines that read the record's words of these names."""
    return _pack_left(words) + _SPLIT_PAIR + _load_plane(words)


def _stores(target: str, each: int | str) -> str:
    """Parts of %both to %{target} and what lies ``each`` (bytes, or a value) behind."""
    lines = []
    for part in range(PARTS):
        before = f"%{target}" if part == 0 else f"%{target}{part - 1}"
        step = 0 if part == 0 else each
        lines += [
            f"  %{target}{part} = getelementptr i8, ptr {before}, i64 {step}",
            f"  %pair{part} = extractvalue {SPLIT} %both, {part}",
        ]
    return "\n".join(lines)


def _pack_left(words: Callable[..., str]) -> str:
    return f"""
; positions of x of %count channels, 16 at most, as packed tiles of the steps of one pair of images
define internal void @pack_pair(ptr %record, ptr %x, i1 %has_second, i64 %channels, ptr %positions, i64 %count,
    ptr %to, ptr %most) noinline {{
entry:
{words("x_image_bytes", "pair_steps")}
  %wanted = call <16 x i1> @lanes(i64 %channels)
  %second = select i1 %has_second, <16 x i1> %wanted, <16 x i1> zeroinitializer
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ %next_s, %turns ]
  %first = shl i64 %s, 4
  %step_way = mul i64 %s, {FORM.step_bytes}
  %tile = getelementptr i8, ptr %to, i64 %step_way
  br label %position
position:
  %r = phi i64 [ 0, %step ], [ %next_r, %stored ]
  %q = add i64 %first, %r
  %is_counted = icmp slt i64 %q, %count
  br i1 %is_counted, label %counted, label %stored
counted:
  %place = call i64 @word(ptr %positions, i64 %q)
  %is_there = icmp sge i64 %place, 0
  br i1 %is_there, label %there, label %stored
there:
  %from0 = getelementptr i8, ptr %x, i64 %place
  %from1 = getelementptr i8, ptr %from0, i64 %x_image_bytes
  %there0 = call <16 x float> @loaded(ptr %from0, <16 x i1> %wanted)
  %there1 = call <16 x float> @loaded(ptr %from1, <16 x i1> %second)
  br label %stored
stored:
  %x0 = phi <16 x float> [ zeroinitializer, %position ], [ zeroinitializer, %counted ], [ %there0, %there ]
  %x1 = phi <16 x float> [ zeroinitializer, %position ], [ zeroinitializer, %counted ], [ %there1, %there ]
  %both = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1, ptr %most)
  %row = getelementptr [64 x i8], ptr %tile, i64 %r
{_stores("row", 2 * TILE_BYTES)}
  store <16 x i32> %pair0, ptr %row0, align 64
  store <16 x i32> %pair1, ptr %row1, align 64
  store <16 x i32> %pair2, ptr %row2, align 64
  %next_r = add nuw nsw i64 %r, 1
  %more_r = icmp ult i64 %next_r, 16
  br i1 %more_r, label %position, label %turns
turns:
  call void @turn(ptr %tile)
  %tile1 = getelementptr i8, ptr %tile, i64 {2 * TILE_BYTES}
  call void @turn(ptr %tile1)
  %tile2 = getelementptr i8, ptr %tile, i64 {4 * TILE_BYTES}
  call void @turn(ptr %tile2)
{again("s", "pair_steps", "step", "end")}
end:
  ret void
}}

define internal void @pack_left(ptr %record, ptr %x, i64 %channels, ptr %panel, ptr %most) noinline {{
entry:
{words("left", "x_image_bytes", "phase_bytes", "panel_bytes", "phase_positions", "pair_steps", "phase_count")}
{words("positions")}
  %offset = call i64 @word(ptr %panel, i64 0)
  %images = call i64 @word(ptr %panel, i64 2)
  %source = getelementptr i8, ptr %x, i64 %offset
  %pair_way = mul i64 %x_image_bytes, 2
  %pair_packed = mul i64 %pair_steps, {FORM.step_bytes}
  br label %phase
phase:
  %p = phi i64 [ 0, %entry ], [ %next_p, %phase_done ]
  %numbered = add i64 %p, {PANEL_WORDS}
  %count = call i64 @word(ptr %panel, i64 %numbered)
  %table_way = mul i64 %p, %phase_positions
  %table = getelementptr i64, ptr %positions, i64 %table_way
  %phase_way = mul i64 %p, %phase_bytes
  %phase_to = getelementptr i8, ptr %left, i64 %phase_way
  br label %channel
channel:
  %c = phi i64 [ 0, %phase ], [ %next_c, %channel_done ]
  %c_left = sub i64 %channels, %c
  %c_way = shl i64 %c, 2
  %source_c = getelementptr i8, ptr %source, i64 %c_way
  %half = lshr i64 %c, 5
  %half_way = mul i64 %half, %panel_bytes
  %tile = and i64 %c, 16
  %tile_way = mul i64 %tile, {TILE_BYTES // 16}
  %c_place = add i64 %half_way, %tile_way
  %c_to = getelementptr i8, ptr %phase_to, i64 %c_place
  br label %pair
pair:
  %n = phi i64 [ 0, %channel ], [ %next_n, %pair ]
  %from = phi ptr [ %source_c, %channel ], [ %next_from, %pair ]
  %to = phi ptr [ %c_to, %channel ], [ %next_to, %pair ]
  %next_image = add i64 %n, 1
  %has_second = icmp ult i64 %next_image, %images
  call void @pack_pair(ptr %record, ptr %from, i1 %has_second, i64 %c_left, ptr %table, i64 %count, ptr %to, ptr %most)
  %next_from = getelementptr i8, ptr %from, i64 %pair_way
  %next_to = getelementptr i8, ptr %to, i64 %pair_packed
{again("n", "images", "pair", "channel_done", 2)}
channel_done:
{again("c", "channels", "channel", "phase_done", 16)}
phase_done:
{again("p", "phase_count", "phase", "end")}
end:
  ret void
}}

"""


_SPLIT_PAIR = f"""
; %count elements of two images, side by side
define internal void @split_pair(ptr %to, i64 %part_bytes, ptr %from, i64 %image_bytes, i1 %has_second, i64 %count,
    ptr %most) alwaysinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %left = sub i64 %count, %i
  %wanted = call <16 x i1> @lanes(i64 %left)
  %second = select i1 %has_second, <16 x i1> %wanted, <16 x i1> zeroinitializer
  %from0 = getelementptr float, ptr %from, i64 %i
  %from1 = getelementptr i8, ptr %from0, i64 %image_bytes
  %x0 = call <16 x float> @loaded(ptr %from0, <16 x i1> %wanted)
  %x1 = call <16 x float> @loaded(ptr %from1, <16 x i1> %second)
  %both = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1, ptr %most)
  %to_i = getelementptr i32, ptr %to, i64 %i
{_stores("to_i", "%part_bytes")}
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %pair0, ptr %to_i0, i32 4, <16 x i1> %wanted)
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %pair1, ptr %to_i1, i32 4, <16 x i1> %wanted)
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %pair2, ptr %to_i2, i32 4, <16 x i1> %wanted)
  %next = add nuw nsw i64 %i, 16
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}

"""


def _load_plane(words: Callable[..., str]) -> str:
    return f"""
define internal void @load_plane(ptr %record, ptr %w, i64 %features, ptr %panel, ptr %most) noinline {{
entry:
{words("plane", "w_image_bytes", "part_bytes", "pair_bytes", "plane_lines", "plane_line_bytes", "lines", "line_bytes")}
{words("runs", "run_elements", "run_bytes", "run_plane_bytes", "skipped_bytes", "plane_skipped_bytes", "shown_bytes")}
  %offset = call i64 @word(ptr %panel, i64 1)
  %images = call i64 @word(ptr %panel, i64 2)
  %first = call i64 @word(ptr %panel, i64 3)
  %all_skipped = add i64 %offset, %skipped_bytes
  %source = getelementptr i8, ptr %w, i64 %all_skipped
  %target = getelementptr i8, ptr %plane, i64 %plane_skipped_bytes
  %pair_way = mul i64 %w_image_bytes, 2
  %by_positions = icmp eq i64 %run_elements, 0
  %elements = select i1 %by_positions, i64 %features, i64 %run_elements
  br label %pair
pair:
  %n = phi i64 [ 0, %entry ], [ %next_n, %pair_done ]
  %from_n = phi ptr [ %source, %entry ], [ %next_from, %pair_done ]
  %to_n = phi ptr [ %target, %entry ], [ %next_to, %pair_done ]
  %next_image = add i64 %n, 1
  %has_second = icmp ult i64 %next_image, %images
  br label %line
line:
  %l = phi i64 [ 0, %pair ], [ %next_l, %line_done ]
  %number = add i64 %first, %l
  %is_line = icmp ult i64 %number, %lines
  %from_way = mul i64 %number, %line_bytes
  %from_l = getelementptr i8, ptr %from_n, i64 %from_way
  %to_way = mul i64 %l, %plane_line_bytes
  %to_l = getelementptr i8, ptr %to_n, i64 %to_way
  br i1 %is_line, label %run, label %zeros
zeros:
  %to_l1 = getelementptr i8, ptr %to_l, i64 %part_bytes
  %to_l2 = getelementptr i8, ptr %to_l1, i64 %part_bytes
  call void @llvm.memset.p0.i64(ptr %to_l, i8 0, i64 %shown_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %to_l1, i8 0, i64 %shown_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %to_l2, i8 0, i64 %shown_bytes, i1 false)
  br label %line_done
run:
  %r = phi i64 [ 0, %line ], [ %next_r, %run ]
  %r_way = mul i64 %r, %run_bytes
  %r_place = mul i64 %r, %run_plane_bytes
  %from = getelementptr i8, ptr %from_l, i64 %r_way
  %to = getelementptr i8, ptr %to_l, i64 %r_place
  call void @split_pair(
    ptr %to, i64 %part_bytes, ptr %from, i64 %w_image_bytes, i1 %has_second, i64 %elements, ptr %most)
{again("r", "runs", "run", "line_done")}
line_done:
{again("l", "plane_lines", "line", "pair_done")}
pair_done:
  %next_from = getelementptr i8, ptr %from_n, i64 %pair_way
  %next_to = getelementptr i8, ptr %to_n, i64 %pair_bytes
{again("n", "images", "pair", "end", 2)}
end:
  ret void
}}

"""
