"""What a convolution on the tile unit reads, laid out for it: lines of the input as planes, the kernel as packed tiles.

Pieces of IR for llvm_convolution_image, whose record they read.
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.codegen.llvm_convolution_tiles import FORM, PARTS, SPLIT
from runtime.codegen.llvm_tiles import TILE_BYTES, listed
from runtime.codegen.llvm_words import again

#: Words that say what a part of the outputs needs.
PART_WORDS = 5


def packing_ir(words: Callable[..., str]) -> str:
    """``@load_panel`` and ``@pack_kernel``; ``words``: lines that read the record's words of these names."""
    return _SPLIT_RUN + _load_panel(words) + _pack_kernel(words)


def _stores(part: int) -> str:
    return f"""
  %pair{part} = extractvalue {SPLIT} %parts, {part}
  %halves{part} = bitcast <16 x i32> %pair{part} to <32 x i16>
  %in_order{part} = shufflevector <32 x i16> %halves{part}, <32 x i16> poison, <32 x i32> {_UNZIPPED}
  call void @llvm.masked.store.v32i16.p0(<32 x i16> %in_order{part}, ptr %to{part}, i32 2, <32 x i1> %both)"""


def _rows() -> str:
    return "".join(
        f"""
  %pair{part} = extractvalue {SPLIT} %parts, {part}
  %halves{part} = bitcast <16 x i32> %pair{part} to <32 x i16>
  %in_order{part} = shufflevector <32 x i16> %halves{part}, <32 x i16> poison, <32 x i32> {_UNZIPPED}
  %row{part} = getelementptr [64 x i8], ptr %to{part}, i64 %f
  store <32 x i16> %in_order{part}, ptr %row{part}, align 64"""
        for part in range(PARTS)
    )


#: All low halves, then all high halves.
_UNZIPPED = listed((*range(0, 32, 2), *range(1, 32, 2)))
_BOTH = listed(range(32))

_SPLIT_RUN = f"""
; split %count elements
define internal void @split_run(ptr %to, i64 %part_bytes, ptr %from, i64 %count, ptr %most) alwaysinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %left = sub i64 %count, %i
  %behind = sub i64 %left, 16
  %mask0 = call <16 x i1> @lanes(i64 %left)
  %mask1 = call <16 x i1> @lanes(i64 %behind)
  %from0 = getelementptr float, ptr %from, i64 %i
  %from1 = getelementptr i8, ptr %from0, i64 64
  %x0 = call <16 x float> @loaded(ptr %from0, <16 x i1> %mask0)
  %x1 = call <16 x float> @loaded(ptr %from1, <16 x i1> %mask1)
  %parts = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1, ptr %most)
  %both = shufflevector <16 x i1> %mask0, <16 x i1> %mask1, <32 x i32> {_BOTH}
  %to0 = getelementptr i16, ptr %to, i64 %i
  %to1 = getelementptr i8, ptr %to0, i64 %part_bytes
  %to2 = getelementptr i8, ptr %to1, i64 %part_bytes
{_stores(0)}{_stores(1)}{_stores(2)}
  %next = add nuw nsw i64 %i, 32
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}

"""


def _load_panel(words: Callable[..., str]) -> str:
    return f"""
; one line of the planes of one phase; %from is null where it is zeros
define internal void @load_line(ptr %record, ptr %to, ptr %from, ptr %most) alwaysinline {{
entry:
{words("runs", "run_elements", "run_bytes", "run_plane_bytes", "part_bytes")}
  %outside = icmp eq ptr %from, null
  br i1 %outside, label %zeros, label %run
zeros:
  %elements = mul i64 %runs, %run_elements
  %bytes = shl i64 %elements, 1
  %to1 = getelementptr i8, ptr %to, i64 %part_bytes
  %to2 = getelementptr i8, ptr %to1, i64 %part_bytes
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %to1, i8 0, i64 %bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %to2, i8 0, i64 %bytes, i1 false)
  br label %end
run:
  %r = phi i64 [ 0, %entry ], [ %next, %run ]
  %from_way = mul i64 %r, %run_bytes
  %to_way = mul i64 %r, %run_plane_bytes
  %from_r = getelementptr i8, ptr %from, i64 %from_way
  %to_r = getelementptr i8, ptr %to, i64 %to_way
  call void @split_run(ptr %to_r, i64 %part_bytes, ptr %from_r, i64 %run_elements, ptr %most)
  %next = add nuw nsw i64 %r, 1
  %more = icmp ult i64 %next, %runs
  br i1 %more, label %run, label %end
end:
  ret void
}}

define internal void @load_panel(ptr %record, ptr %x, ptr %panel, ptr %most) noinline {{
entry:
{words("planes", "image_lines", "image_bytes", "lines", "line_bytes", "line_step", "skipped_bytes")}
{words("plane_skipped_bytes", "plane_line_bytes", "plane_phase_bytes", "phase_count", "phases")}
  %images_offset = call i64 @word(ptr %panel, i64 0)
  %first = call i64 @word(ptr %panel, i64 2)
  %count = call i64 @word(ptr %panel, i64 3)
  %images = call i64 @word(ptr %panel, i64 4)
  %all_skipped = add i64 %images_offset, %skipped_bytes
  %source = getelementptr i8, ptr %x, i64 %all_skipped
  %target = getelementptr i8, ptr %planes, i64 %plane_skipped_bytes
  br label %phase
phase:
  %p = phi i64 [ 0, %entry ], [ %next_p, %phase_done ]
  %phase_word = call i64 @word(ptr %phases, i64 %p)
  %phase_way = mul i64 %p, %plane_phase_bytes
  %phase_target = getelementptr i8, ptr %target, i64 %phase_way
  br label %line
line:
  %l = phi i64 [ 0, %phase ], [ %next_l, %line ]
  %image = udiv i64 %l, %image_lines
  %within = urem i64 %l, %image_lines
  %number = add i64 %within, %first
  %stepped = mul i64 %number, %line_step
  %h = add i64 %stepped, %phase_word
  %is_line = icmp ult i64 %h, %lines
  %is_image = icmp ult i64 %image, %images
  %is_inside = and i1 %is_line, %is_image
  %image_way = mul i64 %image, %image_bytes
  %line_way = mul i64 %h, %line_bytes
  %way = add i64 %image_way, %line_way
  %there = getelementptr i8, ptr %source, i64 %way
  %from = select i1 %is_inside, ptr %there, ptr null
  %to_way = mul i64 %l, %plane_line_bytes
  %to = getelementptr i8, ptr %phase_target, i64 %to_way
  call void @load_line(ptr %record, ptr %to, ptr %from, ptr %most)
{again("l", "count", "line", "phase_done")}
phase_done:
{again("p", "phase_count", "phase", "end")}
end:
  ret void
}}

"""


def _pack_kernel(words: Callable[..., str]) -> str:
    return f"""
define internal <16 x float> @kernel_row(ptr %w, i64 %offset, i64 %stride, <16 x i1> %wanted) alwaysinline {{
entry:
  %is_there = icmp sge i64 %offset, 0
  %from = getelementptr i8, ptr %w, i64 %offset
  %dense = icmp eq i64 %stride, 4
  br i1 %is_there, label %some, label %none
some:
  br i1 %dense, label %neighbours, label %apart
neighbours:
  %x = call <16 x float> @loaded(ptr %from, <16 x i1> %wanted)
  ret <16 x float> %x
apart:
  %y = call <16 x float> @gathered(ptr %from, i64 %stride, <16 x i1> %wanted)
  ret <16 x float> %y
none:
  ret <16 x float> zeroinitializer
}}

; tiles of at most 16 features, whose elements along the depth follow each other: rows by feature, then turned
define internal void @pack_along(
    ptr %rows, ptr %w, i64 %stride, i64 %features, ptr %to, i64 %steps, ptr %most) noinline {{
entry:
  %count = call i64 @llvm.umin.i64(i64 %features, i64 16)
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ %next_s, %turns ]
  %two = shl i64 %s, 1
  %words = getelementptr i64, ptr %rows, i64 %two
  %offset = call i64 @word(ptr %words, i64 0)
  %elements = call i64 @word(ptr %words, i64 1)
  %behind = sub i64 %elements, 16
  %mask0 = call <16 x i1> @lanes(i64 %elements)
  %mask1 = call <16 x i1> @lanes(i64 %behind)
  %from_s = getelementptr i8, ptr %w, i64 %offset
  %step_way = mul i64 %s, {FORM.step_bytes}
  %to0 = getelementptr i8, ptr %to, i64 %step_way
  %to1 = getelementptr i8, ptr %to0, i64 {2 * TILE_BYTES}
  %to2 = getelementptr i8, ptr %to0, i64 {4 * TILE_BYTES}
  br label %feature
feature:
  %f = phi i64 [ 0, %step ], [ %next_f, %feature ]
  %f_way = mul i64 %f, %stride
  %from0 = getelementptr i8, ptr %from_s, i64 %f_way
  %from1 = getelementptr i8, ptr %from0, i64 64
  %x0 = call <16 x float> @loaded(ptr %from0, <16 x i1> %mask0)
  %x1 = call <16 x float> @loaded(ptr %from1, <16 x i1> %mask1)
  %parts = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1, ptr %most)
{_rows()}
{again("f", "count", "feature", "turns")}
turns:
  call void @turn(ptr %to0)
  call void @turn(ptr %to1)
  call void @turn(ptr %to2)
{again("s", "steps", "step", "end")}
end:
  ret void
}}

; the kernel of %count features, as packed tiles of every part's steps
define internal void @pack_kernel(ptr %record, ptr %w, i64 %count, ptr %most) noinline {{
entry:
{words("packed", "feature_bytes", "part_count", "parts", "kernel_along")}
  %along = icmp ne i64 %kernel_along, 0
  br label %part
part:
  %p = phi i64 [ 0, %entry ], [ %next_p, %part_done ]
  %part_way = mul i64 %p, {PART_WORDS}
  %part_words = getelementptr i64, ptr %parts, i64 %part_way
  %steps = call i64 @word(ptr %part_words, i64 0)
  %place = call i64 @word(ptr %part_words, i64 1)
  %rows = call ptr @pointer(ptr %part_words, i64 4)
  %part_to = getelementptr i8, ptr %packed, i64 %place
  %pairs = mul i64 %steps, 16
  br label %block
block:
  %f = phi i64 [ 0, %part ], [ %next_f, %block_done ]
  %half = udiv i64 %f, 32
  %half_steps = mul i64 %half, %steps
  %block_way = mul i64 %half_steps, {FORM.step_bytes}
  %tile = and i64 %f, 16
  %tile_way = mul i64 %tile, {TILE_BYTES // 16}
  %block_offset = add i64 %block_way, %tile_way
  %block_to = getelementptr i8, ptr %part_to, i64 %block_offset
  %left = sub i64 %count, %f
  %wanted = call <16 x i1> @lanes(i64 %left)
  %f_way = mul i64 %f, %feature_bytes
  %from = getelementptr i8, ptr %w, i64 %f_way
  br i1 %along, label %feature_rows, label %pair
feature_rows:
  call void @pack_along(ptr %rows, ptr %from, i64 %feature_bytes, i64 %left, ptr %block_to, i64 %steps, ptr %most)
  br label %block_done
pair:
  %k = phi i64 [ 0, %block ], [ %next_k, %pair ]
  %k2 = shl i64 %k, 1
  %k21 = add i64 %k2, 1
  %offset0 = call i64 @word(ptr %rows, i64 %k2)
  %offset1 = call i64 @word(ptr %rows, i64 %k21)
  %x0 = call <16 x float> @kernel_row(ptr %from, i64 %offset0, i64 %feature_bytes, <16 x i1> %wanted)
  %x1 = call <16 x float> @kernel_row(ptr %from, i64 %offset1, i64 %feature_bytes, <16 x i1> %wanted)
  %both = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1, ptr %most)
  %step = lshr i64 %k, 4
  %row = and i64 %k, 15
  %step_way = mul i64 %step, {FORM.step_bytes}
  %row_way = mul i64 %row, 64
  %pair_way = add i64 %step_way, %row_way
  %to0 = getelementptr i8, ptr %block_to, i64 %pair_way
  %to1 = getelementptr i8, ptr %to0, i64 {2 * TILE_BYTES}
  %to2 = getelementptr i8, ptr %to0, i64 {4 * TILE_BYTES}
  %pair0 = extractvalue {SPLIT} %both, 0
  %pair1 = extractvalue {SPLIT} %both, 1
  %pair2 = extractvalue {SPLIT} %both, 2
  store <16 x i32> %pair0, ptr %to0, align 64
  store <16 x i32> %pair1, ptr %to1, align 64
  store <16 x i32> %pair2, ptr %to2, align 64
{again("k", "pairs", "pair", "block_done")}
block_done:
{again("f", "count", "block", "part_done", 16)}
part_done:
{again("p", "part_count", "part", "end")}
end:
  ret void
}}

"""
