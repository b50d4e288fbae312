"""Packing for a convolution on the tile unit: lines of the input as planes, the kernel as packed tiles.

Pieces of IR for tile_image_ir, whose record they read.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from runtime.codegen.ir.record_words import again
from runtime.cpu.kernels.convolution.ir.bf16_split_ir import fetched_ahead, runs_ir
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import FORM, PARTS, SPLIT
from runtime.cpu.kernels.gemm.tile_types import TILE_BYTES, listed

#: Words that say what a part of the outputs needs, and what a phase of the planes does.
PART_WORDS, PHASE_WORDS = 5, 4


class KernelForm(IntEnum):
    """Addressing of a step's elements in the kernel."""

    PAIRS = 0
    """Of each of 32 elements; features follow at ``feature_bytes``."""
    ALONG = 1
    """Of the first one and how many follow each other, of each feature."""
    EACH = 2
    """Of each of 32 elements for each of 16 features."""


def packing_ir(words: Callable[..., str]) -> str:
    """``@load_panel`` and ``@pack_kernel``; ``words``: lines that read the record's words of these names."""
    return _SPLIT_RUNS + _load_panel(words) + _pack_kernel(words)


def _in_order(part: int) -> str:
    """%in_order: a part's bf16 as the elements follow each other."""
    return f"""
  %pair{part} = extractvalue {SPLIT} %parts, {part}
  %halves{part} = bitcast <16 x i32> %pair{part} to <32 x i16>
  %in_order{part} = shufflevector <32 x i16> %halves{part}, <32 x i16> poison, <32 x i32> {_UNZIPPED}"""


def _rows() -> str:
    return "".join(
        f"""{_in_order(part)}
  %row{part} = getelementptr [64 x i8], ptr %to{part}, i64 %f
  store <32 x i16> %in_order{part}, ptr %row{part}, align 64"""
        for part in range(PARTS)
    )


#: All low halves, then all high halves.
_UNZIPPED = listed((*range(0, 32, 2), *range(1, 32, 2)))
_BOTH = listed(range(32))

_SPLIT_RUNS = f"""
define internal <16 x i32> @split_runs_whole(
    ptr %to0, i64 %part_bytes, ptr %from0, <16 x i32> %before) alwaysinline {{
  %from1 = getelementptr i8, ptr %from0, i64 64
  %x0 = load <16 x float>, ptr %from0, align 4
  %x1 = load <16 x float>, ptr %from1, align 4
{fetched_ahead("from0", "from1")}
  %larger = call <16 x i32> @larger(<16 x i32> %before, <16 x float> %x0, <16 x float> %x1)
  %parts = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1)
  %to1 = getelementptr i8, ptr %to0, i64 %part_bytes
  %to2 = getelementptr i8, ptr %to1, i64 %part_bytes
{_in_order(0)}{_in_order(1)}{_in_order(2)}
  store <32 x i16> %in_order0, ptr %to0, align 2
  store <32 x i16> %in_order1, ptr %to1, align 2
  store <32 x i16> %in_order2, ptr %to2, align 2
  ret <16 x i32> %larger
}}

define internal <16 x i32> @split_runs_some(
    ptr %to0, i64 %part_bytes, ptr %from0, <16 x i32> %before, i64 %count) alwaysinline {{
  %behind = sub i64 %count, 16
  %mask0 = call <16 x i1> @lanes(i64 %count)
  %mask1 = call <16 x i1> @lanes(i64 %behind)
  %both = shufflevector <16 x i1> %mask0, <16 x i1> %mask1, <32 x i32> {_BOTH}
  %from1 = getelementptr i8, ptr %from0, i64 64
  %x0 = call <16 x float> @loaded(ptr %from0, <16 x i1> %mask0)
  %x1 = call <16 x float> @loaded(ptr %from1, <16 x i1> %mask1)
  %larger = call <16 x i32> @larger(<16 x i32> %before, <16 x float> %x0, <16 x float> %x1)
  %parts = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1)
  %to1 = getelementptr i8, ptr %to0, i64 %part_bytes
  %to2 = getelementptr i8, ptr %to1, i64 %part_bytes
{_in_order(0)}{_in_order(1)}{_in_order(2)}
  call void @llvm.masked.store.v32i16.p0(<32 x i16> %in_order0, ptr %to0, i32 2, <32 x i1> %both)
  call void @llvm.masked.store.v32i16.p0(<32 x i16> %in_order1, ptr %to1, i32 2, <32 x i1> %both)
  call void @llvm.masked.store.v32i16.p0(<32 x i16> %in_order2, ptr %to2, i32 2, <32 x i1> %both)
  ret <16 x i32> %larger
}}
""" + runs_ir("split_runs", width=32, word="i16")


def _load_panel(words: Callable[..., str]) -> str:
    return f"""
; one line of a group of images in the planes of one phase, %runs runs each; %from is null where it is zeros
define internal void @load_line(ptr %record, i64 %runs, ptr %to, ptr %from, ptr %most) alwaysinline {{
entry:
{words("together", "image_bytes", "run_elements", "run_bytes", "run_plane_bytes", "plane_image_bytes", "part_bytes")}
  %outside = icmp eq ptr %from, null
  br i1 %outside, label %zeros, label %some
zeros:
  %all_runs = mul i64 %runs, %together
  %elements = mul i64 %all_runs, %run_elements
  %bytes = shl i64 %elements, 1
  %to1 = getelementptr i8, ptr %to, i64 %part_bytes
  %to2 = getelementptr i8, ptr %to1, i64 %part_bytes
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %to1, i8 0, i64 %bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %to2, i8 0, i64 %bytes, i1 false)
  br label %end
some:
  %any = icmp ne i64 %runs, 0
  br i1 %any, label %image, label %end
image:
  %n = phi i64 [ 0, %some ], [ %next_n, %image_done ]
  %from_way = mul i64 %n, %image_bytes
  %to_way = mul i64 %n, %plane_image_bytes
  %from_n = getelementptr i8, ptr %from, i64 %from_way
  %to_n = getelementptr i8, ptr %to, i64 %to_way
  call void @split_runs(ptr %to_n, i64 %part_bytes, ptr %from_n, i64 %runs, i64 %run_elements, i64 %run_bytes,
    i64 %run_plane_bytes, ptr %most)
  br label %image_done
image_done:
{again("n", "together", "image", "end")}
end:
  ret void
}}

define internal void @load_panel(ptr %record, ptr %x, ptr %panel, ptr %most) noinline {{
entry:
{words("planes", "image_lines", "image_bytes", "together", "lines", "line_bytes", "line_step")}
{words("plane_line_bytes", "plane_phase_bytes", "phase_count", "phases")}
  %images_offset = call i64 @word(ptr %panel, i64 0)
  %first = call i64 @word(ptr %panel, i64 2)
  %count = call i64 @word(ptr %panel, i64 3)
  %groups = call i64 @word(ptr %panel, i64 4)
  %source = getelementptr i8, ptr %x, i64 %images_offset
  %group_bytes = mul i64 %together, %image_bytes
  br label %phase
phase:
  %p = phi i64 [ 0, %entry ], [ %next_p, %phase_done ]
  %number_way = mul i64 %p, {PHASE_WORDS}
  %phase_at = getelementptr i64, ptr %phases, i64 %number_way
  %shift = call i64 @word(ptr %phase_at, i64 0)
  %skipped = call i64 @word(ptr %phase_at, i64 1)
  %plane_skipped = call i64 @word(ptr %phase_at, i64 2)
  %runs = call i64 @word(ptr %phase_at, i64 3)
  %source_p = getelementptr i8, ptr %source, i64 %skipped
  %phase_way = mul i64 %p, %plane_phase_bytes
  %target_way = add i64 %phase_way, %plane_skipped
  %phase_target = getelementptr i8, ptr %planes, i64 %target_way
  br label %line
line:
  %l = phi i64 [ 0, %phase ], [ %next_l, %line ]
  %group = udiv i64 %l, %image_lines
  %within = urem i64 %l, %image_lines
  %number = add i64 %within, %first
  %stepped = mul i64 %number, %line_step
  %h = add i64 %stepped, %shift
  %is_line = icmp ult i64 %h, %lines
  %is_group = icmp ult i64 %group, %groups
  %is_inside = and i1 %is_line, %is_group
  %group_way = mul i64 %group, %group_bytes
  %line_way = mul i64 %h, %line_bytes
  %way = add i64 %group_way, %line_way
  %there = getelementptr i8, ptr %source_p, i64 %way
  %from = select i1 %is_inside, ptr %there, ptr null
  %to_way = mul i64 %l, %plane_line_bytes
  %to = getelementptr i8, ptr %phase_target, i64 %to_way
  call void @load_line(ptr %record, i64 %runs, ptr %to, ptr %from, ptr %most)
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

; of 16 features, whose places -1 say that there is none
define internal <16 x float> @kernel_each(ptr %w, ptr %offsets) alwaysinline {{
  %ways = load <16 x i64>, ptr %offsets, align 8
  %are_there = icmp sge <16 x i64> %ways, zeroinitializer
  %places = getelementptr i8, ptr %w, <16 x i64> %ways
  %x = call <16 x float> @llvm.masked.gather.v16f32.v16p0(
    <16 x ptr> %places, i32 4, <16 x i1> %are_there, <16 x float> zeroinitializer)
  ret <16 x float> %x
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
  call void @widen(ptr %most, <16 x float> %x0, <16 x float> %x1)
  %parts = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1)
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

; pairs of elements of at most 16 features at %stride bytes, whose places are %rows; or, if %each, have places each
define internal void @pack_pairs(ptr %rows, ptr %w, i64 %stride, i64 %features, ptr %to, i64 %steps, i1 %each,
    ptr %most) noinline {{
entry:
  %wanted = call <16 x i1> @lanes(i64 %features)
  %pairs = mul i64 %steps, 16
  br label %pair
pair:
  %k = phi i64 [ 0, %entry ], [ %next_k, %split ]
  %k2 = shl i64 %k, 1
  %k21 = add i64 %k2, 1
  br i1 %each, label %by_feature, label %by_row
by_feature:
  %each0 = getelementptr <16 x i64>, ptr %rows, i64 %k2
  %each1 = getelementptr <16 x i64>, ptr %rows, i64 %k21
  %f0 = call <16 x float> @kernel_each(ptr %w, ptr %each0)
  %f1 = call <16 x float> @kernel_each(ptr %w, ptr %each1)
  br label %split
by_row:
  %offset0 = call i64 @word(ptr %rows, i64 %k2)
  %offset1 = call i64 @word(ptr %rows, i64 %k21)
  %r0 = call <16 x float> @kernel_row(ptr %w, i64 %offset0, i64 %stride, <16 x i1> %wanted)
  %r1 = call <16 x float> @kernel_row(ptr %w, i64 %offset1, i64 %stride, <16 x i1> %wanted)
  br label %split
split:
  %x0 = phi <16 x float> [ %f0, %by_feature ], [ %r0, %by_row ]
  %x1 = phi <16 x float> [ %f1, %by_feature ], [ %r1, %by_row ]
  call void @widen(ptr %most, <16 x float> %x0, <16 x float> %x1)
  %both = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1)
  %step = lshr i64 %k, 4
  %row = and i64 %k, 15
  %step_way = mul i64 %step, {FORM.step_bytes}
  %row_way = mul i64 %row, 64
  %pair_way = add i64 %step_way, %row_way
  %to0 = getelementptr i8, ptr %to, i64 %pair_way
  %to1 = getelementptr i8, ptr %to0, i64 {2 * TILE_BYTES}
  %to2 = getelementptr i8, ptr %to0, i64 {4 * TILE_BYTES}
  %pair0 = extractvalue {SPLIT} %both, 0
  %pair1 = extractvalue {SPLIT} %both, 1
  %pair2 = extractvalue {SPLIT} %both, 2
  store <16 x i32> %pair0, ptr %to0, align 64
  store <16 x i32> %pair1, ptr %to1, align 64
  store <16 x i32> %pair2, ptr %to2, align 64
{again("k", "pairs", "pair", "end")}
end:
  ret void
}}

; the kernel of %count features, as packed tiles of every part's steps
define internal void @pack_kernel(ptr %record, ptr %w, i64 %count, ptr %most) noinline {{
entry:
{words("packed", "feature_bytes", "part_count", "parts", "kernel_form")}
  %along = icmp eq i64 %kernel_form, {KernelForm.ALONG.value}
  %each = icmp eq i64 %kernel_form, {KernelForm.EACH.value}
  br label %part
part:
  %p = phi i64 [ 0, %entry ], [ %next_p, %part_done ]
  %part_way = mul i64 %p, {PART_WORDS}
  %part_words = getelementptr i64, ptr %parts, i64 %part_way
  %steps = call i64 @word(ptr %part_words, i64 0)
  %place = call i64 @word(ptr %part_words, i64 1)
  %rows = call ptr @pointer(ptr %part_words, i64 4)
  %part_to = getelementptr i8, ptr %packed, i64 %place
  %any = icmp ne i64 %steps, 0
  br i1 %any, label %block, label %part_done
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
  %f_way = mul i64 %f, %feature_bytes
  %from = getelementptr i8, ptr %w, i64 %f_way
  br i1 %along, label %feature_rows, label %pairs
feature_rows:
  call void @pack_along(ptr %rows, ptr %from, i64 %feature_bytes, i64 %left, ptr %block_to, i64 %steps, ptr %most)
  br label %block_done
pairs:
  call void @pack_pairs(
    ptr %rows, ptr %from, i64 %feature_bytes, i64 %left, ptr %block_to, i64 %steps, i1 %each, ptr %most)
  br label %block_done
block_done:
{again("f", "count", "block", "part_done", 16)}
part_done:
{again("p", "part_count", "part", "end")}
end:
  ret void
}}

"""
