"""Packing for a kernel's gradient on the tile unit: positions of w as tiles, images of x as planes.

Pieces of IR for tile_gradient_ir, whose record they read.
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.codegen.ir.record_words import again
from runtime.cpu.kernels.convolution.ir.bf16_split_ir import fetched_ahead, runs_ir
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import FORM, PARTS, SPLIT
from runtime.cpu.kernels.gemm.tile_types import LINES, TILE_BYTES

#: Words of a panel before those of its outputs along the rows, and of a phase of the columns.
PANEL_WORDS, PHASE_WORDS = 6, 3


def packing_ir(words: Callable[..., str]) -> str:
    """``@pack_left`` and ``@load_plane``; ``words``: lines that read the record's words of these names."""
    return _PACK_STEP + _pack_left(words) + _SPLIT_PAIRS + _load_plane(words)


def _parts_to(target: str, each: int | str) -> str:
    """%pair of each part of %parts, and %{target}{part}: ``each`` (bytes, or a value) behind each other."""
    lines = []
    for part in range(PARTS):
        before = f"%{target}" if part == 0 else f"%{target}{part - 1}"
        step = 0 if part == 0 else each
        lines += [
            f"  %{target}{part} = getelementptr i8, ptr {before}, i64 {step}",
            f"  %pair{part} = extractvalue {SPLIT} %parts, {part}",
        ]
    return "\n".join(lines)


def _gathered(half: int, wanted: str) -> str:
    """A row of the tile of one of two images: 16 features of a position; zeros where there is none."""
    return f"""
  %x{half} = call <16 x float> @loaded(ptr %from{half}, <16 x i1> {wanted})
  %to{half} = getelementptr [64 x i8], ptr %rows{half}, i64 %r
  store <16 x float> %x{half}, ptr %to{half}, align 64"""


#: ``@pack_step``: 16 positions of 16 features of a pair of images as a tile of each part. Rows are turned before they
#: become parts, of which there are three.
_PACK_STEP = f"""
define internal void @pack_step(ptr %from, ptr %positions, i64 %image_bytes, <16 x i1> %wanted, <16 x i1> %second,
    ptr %tile, ptr %rows0, ptr %most) alwaysinline {{
entry:
  %rows1 = getelementptr i8, ptr %rows0, i64 {TILE_BYTES}
  br label %position
position:
  %r = phi i64 [ 0, %entry ], [ %next_r, %position ]
  %place = call i64 @word(ptr %positions, i64 %r)
  %is_there = icmp sge i64 %place, 0
  %first_here = select i1 %is_there, <16 x i1> %wanted, <16 x i1> zeroinitializer
  %second_here = select i1 %is_there, <16 x i1> %second, <16 x i1> zeroinitializer
  %from0 = getelementptr i8, ptr %from, i64 %place
  %from1 = getelementptr i8, ptr %from0, i64 %image_bytes
{_gathered(0, "%first_here")}{_gathered(1, "%second_here")}
{fetched_ahead("from0", "from1")}
  %next_r = add nuw nsw i64 %r, 1
  %more_r = icmp ult i64 %next_r, {LINES}
  br i1 %more_r, label %position, label %turns
turns:
  call void @turn(ptr %rows0)
  call void @turn(ptr %rows1)
  %most_before = load <16 x i32>, ptr %most
  br label %feature
feature:
  %f = phi i64 [ 0, %turns ], [ %next_f, %feature ]
  %largest = phi <16 x i32> [ %most_before, %turns ], [ %larger, %feature ]
  %turned0 = getelementptr [64 x i8], ptr %rows0, i64 %f
  %turned1 = getelementptr [64 x i8], ptr %rows1, i64 %f
  %y0 = load <16 x float>, ptr %turned0, align 64
  %y1 = load <16 x float>, ptr %turned1, align 64
  %larger = call <16 x i32> @larger(<16 x i32> %largest, <16 x float> %y0, <16 x float> %y1)
  %parts = call {SPLIT} @split(<16 x float> %y0, <16 x float> %y1)
  %row = getelementptr [64 x i8], ptr %tile, i64 %f
{_parts_to("row", 2 * TILE_BYTES)}
  store <16 x i32> %pair0, ptr %row0, align 64
  store <16 x i32> %pair1, ptr %row1, align 64
  store <16 x i32> %pair2, ptr %row2, align 64
  %next_f = add nuw nsw i64 %f, 1
  %more_f = icmp ult i64 %next_f, {LINES}
  br i1 %more_f, label %feature, label %end
end:
  store <16 x i32> %larger, ptr %most
  ret void
}}
"""


def _pack_left(words: Callable[..., str]) -> str:
    return f"""
; a line of a group of pairs, of at most 16 features, as tiles
define internal void @pack_line(ptr %record, ptr %from, <16 x i1> %wanted, <16 x i1> %second, ptr %to, ptr %rows,
    ptr %most) noinline {{
entry:
{words("w_image_bytes", "line_steps", "positions")}
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ %next_s, %step_done ]
  %first = shl i64 %s, 4
  %places = getelementptr i64, ptr %positions, i64 %first
  %step_way = mul i64 %s, {FORM.step_bytes}
  %tile = getelementptr i8, ptr %to, i64 %step_way
  call void @pack_step(ptr %from, ptr %places, i64 %w_image_bytes, <16 x i1> %wanted, <16 x i1> %second, ptr %tile,
    ptr %rows, ptr %most)
  br label %step_done
step_done:
{again("s", "line_steps", "step", "end")}
end:
  ret void
}}

define internal void @pack_left(ptr %record, ptr %w, i64 %features, ptr %panel, ptr %rows, ptr %most) noinline {{
entry:
{words("left", "w_image_bytes", "w_line_bytes", "together", "line_steps", "panel_lines", "panel_bytes")}
  %offset = call i64 @word(ptr %panel, i64 1)
  %images = call i64 @word(ptr %panel, i64 2)
  %groups = call i64 @word(ptr %panel, i64 3)
  %lines = call i64 @word(ptr %panel, i64 4)
  %source = getelementptr i8, ptr %w, i64 %offset
  %group_images = shl i64 %together, 1
  %group_way = mul i64 %group_images, %w_image_bytes
  %line_way = mul i64 %line_steps, {FORM.step_bytes}
  %group_packed = mul i64 %line_way, %panel_lines
  br label %feature
feature:
  %f = phi i64 [ 0, %entry ], [ %next_f, %feature_done ]
  %f_left = sub i64 %features, %f
  %wanted = call <16 x i1> @lanes(i64 %f_left)
  %f_way = shl i64 %f, 2
  %source_f = getelementptr i8, ptr %source, i64 %f_way
  %half = lshr i64 %f, 5
  %half_way = mul i64 %half, %panel_bytes
  %tile = and i64 %f, 16
  %tile_way = mul i64 %tile, {TILE_BYTES // 16}
  %f_place = add i64 %half_way, %tile_way
  %f_to = getelementptr i8, ptr %left, i64 %f_place
  br label %group
group:
  %g = phi i64 [ 0, %feature ], [ %next_g, %group_done ]
  %from_g = phi ptr [ %source_f, %feature ], [ %next_from, %group_done ]
  %to_g = phi ptr [ %f_to, %feature ], [ %next_to, %group_done ]
  %first_image = mul i64 %g, %group_images
  %next_image = add i64 %first_image, 1
  %has_second = icmp ult i64 %next_image, %images
  %second = select i1 %has_second, <16 x i1> %wanted, <16 x i1> zeroinitializer
  br label %line
line:
  %l = phi i64 [ 0, %group ], [ %next_l, %line ]
  %l_way = mul i64 %l, %w_line_bytes
  %from = getelementptr i8, ptr %from_g, i64 %l_way
  %l_packed = mul i64 %l, %line_way
  %to = getelementptr i8, ptr %to_g, i64 %l_packed
  call void @pack_line(ptr %record, ptr %from, <16 x i1> %wanted, <16 x i1> %second, ptr %to, ptr %rows, ptr %most)
{again("l", "lines", "line", "group_done")}
group_done:
  %next_from = getelementptr i8, ptr %from_g, i64 %group_way
  %next_to = getelementptr i8, ptr %to_g, i64 %group_packed
{again("g", "groups", "group", "feature_done")}
feature_done:
{again("f", "features", "feature", "end", 16)}
end:
  ret void
}}

"""


#: Elements of two images side by side, the second one's %second_way behind; unless %has_second of one alone.
_PAIR = ("i64 %second_way", "i1 %has_second")
_SPLIT_PAIRS = f"""
define internal <16 x i32> @split_pairs_whole(ptr %to, i64 %part_bytes, ptr %from0, {", ".join(_PAIR)},
    <16 x i32> %before) alwaysinline {{
  %from1 = getelementptr i8, ptr %from0, i64 %second_way
  %x0 = load <16 x float>, ptr %from0, align 4
  %there1 = load <16 x float>, ptr %from1, align 4
  %x1 = select i1 %has_second, <16 x float> %there1, <16 x float> zeroinitializer
{fetched_ahead("from0", "from1")}
  %larger = call <16 x i32> @larger(<16 x i32> %before, <16 x float> %x0, <16 x float> %x1)
  %parts = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1)
{_parts_to("to", "%part_bytes")}
  store <16 x i32> %pair0, ptr %to0, align 4
  store <16 x i32> %pair1, ptr %to1, align 4
  store <16 x i32> %pair2, ptr %to2, align 4
  ret <16 x i32> %larger
}}

define internal <16 x i32> @split_pairs_some(ptr %to, i64 %part_bytes, ptr %from0, {", ".join(_PAIR)},
    <16 x i32> %before, i64 %count) alwaysinline {{
  %wanted = call <16 x i1> @lanes(i64 %count)
  %second = select i1 %has_second, <16 x i1> %wanted, <16 x i1> zeroinitializer
  %from1 = getelementptr i8, ptr %from0, i64 %second_way
  %x0 = call <16 x float> @loaded(ptr %from0, <16 x i1> %wanted)
  %x1 = call <16 x float> @loaded(ptr %from1, <16 x i1> %second)
  %larger = call <16 x i32> @larger(<16 x i32> %before, <16 x float> %x0, <16 x float> %x1)
  %parts = call {SPLIT} @split(<16 x float> %x0, <16 x float> %x1)
{_parts_to("to", "%part_bytes")}
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %pair0, ptr %to0, i32 4, <16 x i1> %wanted)
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %pair1, ptr %to1, i32 4, <16 x i1> %wanted)
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %pair2, ptr %to2, i32 4, <16 x i1> %wanted)
  ret <16 x i32> %larger
}}
""" + runs_ir("split_pairs", width=LINES, word="i32", arguments=_PAIR)


def _load_plane(words: Callable[..., str]) -> str:
    return f"""
; the lines of a pair of images in the planes of one phase, %runs runs each
define internal void @load_pair(ptr %record, ptr %to, ptr %from, i64 %runs, i64 %elements, i1 %has_second, i64 %down,
    ptr %most) noinline {{
entry:
{words("x_image_bytes", "part_bytes", "plane_lines", "plane_line_bytes", "lines", "line_bytes", "line_unit")}
{words("run_bytes", "run_plane_bytes")}
  %second_way = select i1 %has_second, i64 %x_image_bytes, i64 0
  br label %line
line:
  %l = phi i64 [ 0, %entry ], [ %next_l, %line_done ]
  %apart = mul i64 %l, %line_unit
  %h = add i64 %apart, %down
  %is_line = icmp ult i64 %h, %lines
  %from_way = mul i64 %h, %line_bytes
  %to_way = mul i64 %l, %plane_line_bytes
  %from_l = getelementptr i8, ptr %from, i64 %from_way
  %to_l = getelementptr i8, ptr %to, i64 %to_way
  br i1 %is_line, label %there, label %line_done
there:
  call void @split_pairs(ptr %to_l, i64 %part_bytes, ptr %from_l, i64 %second_way, i1 %has_second, i64 %runs,
    i64 %elements, i64 %run_bytes, i64 %run_plane_bytes, ptr %most)
  br label %line_done
line_done:
{again("l", "plane_lines", "line", "end")}
end:
  ret void
}}

; what %channels channels of a panel's images show; lines that no image has stay as they are, no product needs them
define internal void @load_plane(ptr %record, ptr %x, i64 %channels, ptr %panel, ptr %most) noinline {{
entry:
{words("plane", "x_image_bytes", "together", "plane_lines", "plane_line_bytes", "plane_pair_bytes", "run_elements")}
{words("phase_count", "phases")}
  %offset = call i64 @word(ptr %panel, i64 0)
  %images = call i64 @word(ptr %panel, i64 2)
  %down = call i64 @word(ptr %panel, i64 5)
  %source = getelementptr i8, ptr %x, i64 %offset
  %rounded = add i64 %images, 1
  %pairs = lshr i64 %rounded, 1
  %group_bytes = mul i64 %plane_lines, %plane_line_bytes
  %by_places = icmp eq i64 %run_elements, 0
  %elements = select i1 %by_places, i64 %channels, i64 %run_elements
  br label %phase
phase:
  %p = phi i64 [ 0, %entry ], [ %next_p, %phase_done ]
  %p_way = mul i64 %p, {PHASE_WORDS}
  %phase_at = getelementptr i64, ptr %phases, i64 %p_way
  %skipped = call i64 @word(ptr %phase_at, i64 0)
  %place = call i64 @word(ptr %phase_at, i64 1)
  %runs = call i64 @word(ptr %phase_at, i64 2)
  %source_p = getelementptr i8, ptr %source, i64 %skipped
  %plane_p = getelementptr i8, ptr %plane, i64 %place
  %any = icmp ne i64 %runs, 0
  br i1 %any, label %pair, label %phase_done
pair:
  %n = phi i64 [ 0, %phase ], [ %next_n, %pair ]
  %group = udiv i64 %n, %together
  %number = urem i64 %n, %together
  %group_way = mul i64 %group, %group_bytes
  %number_way = mul i64 %number, %plane_pair_bytes
  %to_way = add i64 %group_way, %number_way
  %to = getelementptr i8, ptr %plane_p, i64 %to_way
  %first_image = shl i64 %n, 1
  %from_way = mul i64 %first_image, %x_image_bytes
  %from = getelementptr i8, ptr %source_p, i64 %from_way
  %next_image = add i64 %first_image, 1
  %has_second = icmp ult i64 %next_image, %images
  call void @load_pair(
    ptr %record, ptr %to, ptr %from, i64 %runs, i64 %elements, i1 %has_second, i64 %down, ptr %most)
{again("n", "pairs", "pair", "phase_done")}
phase_done:
{again("p", "phase_count", "phase", "end")}
end:
  ret void
}}

"""
