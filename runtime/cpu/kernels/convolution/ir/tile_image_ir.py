"""Native code of a convolution on the tile unit without a patch matrix.

The input's lines are split into parts (see tile_pieces_ir) once, into planes with zero padding in which output
positions have a constant stride ``row_bytes``. A tile's 16 rows are 16 positions; an element of the window is at the
same offset from each of them, so the left operand of every product of tiles is read from the planes without packing.
The right one is the kernel, packed into tiles by pairs of elements.

The positions of one product are a *unit*: either a line, of a group of images that fills tiles, which skips lines of
padding; or an entire panel of consecutive lines and images, in which some positions belong to no output.
"""

from __future__ import annotations

from functools import cache, partial

from runtime.codegen.ir.record_loads import RECORD_LOADS, again, read
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.codegen.record import Address, Listed, Record, Word, record
from runtime.cpu.kernels.convolution.ir.tile_block_ir import product_ir
from runtime.cpu.kernels.convolution.ir.tile_image_pack_ir import PART_WORDS, packing_ir
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import F32_TYPES, TILES, or_otherwise_ir
from runtime.cpu.kernels.convolution.ir.tile_store_ir import begin_ir
from runtime.cpu.kernels.gemm.tile_types import TILE_BYTES

FUNCTION = "spmd_convolve_image"


@record
class ImageRecord(Record):
    """Record of one convolution; offsets and strides are in bytes.

    Line l of a panel is line l modulo ``image_lines`` of group l / ``image_lines`` of ``group_images`` images; it has
    line (l + first) * line_step + shift of the images, or zeros. phases: (shift, offset of its columns in a line of the
    input and in one of the planes, number of runs of ``run_elements`` elements). otherwise: fallback code for too large
    numbers, and its record. instances: (offsets of input, kernel and output, 1 if products are accumulated). panels:
    (offsets of images and output, first line, lines, groups, first unit, number of units). units: (part, offsets in the
    planes and in the output, positions, first step, steps). parts: (steps, offset of the packed kernel, then addresses
    of tables: each position's offset in the output, each step's offset in the planes, each step's elements of the
    kernel by ``kernel_addressing``). right_steps: offsets of packed steps. lane_offsets: of a block's 32 features in
    the output; dense: these are contiguous.
    """

    x: Address
    w: Address
    out: Address
    planes: Address
    packed: Address
    otherwise: Address
    otherwise_record: Address
    plane_bytes: Word
    part_bytes: Word
    row_bytes: Word
    image_lines: Word
    image_bytes: Word
    group_images: Word
    lines: Word
    line_bytes: Word
    line_step: Word
    run_elements: Word
    run_bytes: Word
    run_plane_bytes: Word
    plane_image_bytes: Word
    plane_line_bytes: Word
    plane_phase_bytes: Word
    features: Word
    feature_bytes: Word
    block_features: Word
    out_feature_bytes: Word
    dense: Word
    kernel_addressing: Word
    phase_count: Word
    instance_count: Word
    panel_count: Word
    part_count: Word
    phases: Listed
    instances: Listed
    panels: Listed
    units: Listed
    lane_offsets: Listed
    parts: Listed
    right_steps: Listed


PANEL_WORDS, UNIT_WORDS = 7, 6
_fields = partial(read, ImageRecord)


@cache
def image_code() -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32, which takes the address of an ImageRecord."""
    return host_jit().compile(
        RECORD_LOADS
        + TILES
        + product_ir(transposed=False)
        + packing_ir(ImageRecord)
        + _IR
        + or_otherwise_ir(FUNCTION, _fields),
        (FUNCTION,),
        passes=Passes.TIDY,
    )


_IR = f"""
; a panel's outputs of %count features, unit by unit
define internal void @multiply_units(ptr %record, ptr %out, ptr %panel, i64 %count, i1 %adds,
    ptr %total, ptr %pending) noinline {{
entry:
{_fields("out_feature_bytes", "planes", "packed", "part_bytes", "row_bytes", "right_steps", "parts", "units")}
  %first_unit = call i64 @word(ptr %panel, i64 5)
  %unit_count = call i64 @word(ptr %panel, i64 6)
  %first_way = mul i64 %first_unit, {UNIT_WORDS}
  %panel_units = getelementptr i64, ptr %units, i64 %first_way
  %tile_bytes = mul i64 %row_bytes, 16
  br label %unit
unit:
  %u = phi i64 [ 0, %entry ], [ %next_u, %unit_done ]
  %unit_way = mul i64 %u, {UNIT_WORDS}
  %unit_at = getelementptr i64, ptr %panel_units, i64 %unit_way
  %part_number = call i64 @word(ptr %unit_at, i64 0)
  %plane_offset = call i64 @word(ptr %unit_at, i64 1)
  %out_offset = call i64 @word(ptr %unit_at, i64 2)
  %positions = call i64 @word(ptr %unit_at, i64 3)
  %first_step = call i64 @word(ptr %unit_at, i64 4)
  %steps = call i64 @word(ptr %unit_at, i64 5)
  %part_way = mul i64 %part_number, {PART_WORDS}
  %part = getelementptr i64, ptr %parts, i64 %part_way
  %part_steps = call i64 @word(ptr %part, i64 0)
  %part_offset = call i64 @word(ptr %part, i64 1)
  %outputs = call ptr @pointer(ptr %part, i64 2)
  %part_left = call ptr @pointer(ptr %part, i64 3)
  %left_steps = getelementptr i64, ptr %part_left, i64 %first_step
  %skipped = mul i64 %first_step, {F32_TYPES.step_bytes}
  %kernel_offset = add i64 %part_offset, %skipped
  %kernel = getelementptr i8, ptr %packed, i64 %kernel_offset
  %plane = getelementptr i8, ptr %planes, i64 %plane_offset
  %out_u = getelementptr i8, ptr %out, i64 %out_offset
  br label %rows
rows:
  %q = phi i64 [ 0, %unit ], [ %next_q, %rows_done ]
  %q_left = sub i64 %positions, %q
  %q_way = mul i64 %q, %row_bytes
  %a = getelementptr i8, ptr %plane, i64 %q_way
  %offsets = getelementptr i64, ptr %outputs, i64 %q
  br label %columns
columns:
  %f = phi i64 [ 0, %rows ], [ %next_f, %columns ]
  %f_left = sub i64 %count, %f
  %block = lshr i64 %f, 5
  %block_steps = mul i64 %block, %part_steps
  %block_way = mul i64 %block_steps, {F32_TYPES.step_bytes}
  %b = getelementptr i8, ptr %kernel, i64 %block_way
  %f_way = mul i64 %f, %out_feature_bytes
  %to = getelementptr i8, ptr %out_u, i64 %f_way
  call void @product(ptr %a, i64 %row_bytes, i64 %tile_bytes, i64 %part_bytes, ptr %left_steps,
    ptr %b, i64 64, i64 {TILE_BYTES}, i64 {2 * TILE_BYTES}, ptr %right_steps, i64 %steps, ptr %total, ptr %pending,
    ptr %to, ptr %offsets, i64 %q_left, i64 %f_left, i1 %adds)
{again("f", "count", "columns", "rows_done", 32)}
rows_done:
{again("q", "positions", "rows", "unit_done", 32)}
unit_done:
{again("u", "unit_count", "unit", "end")}
end:
  ret void
}}

define internal i1 @convolve(ptr %record) noinline {{
entry:
  %most = alloca <16 x i32>, align 64
{_fields("x", "w", "out", "planes", "plane_bytes", "features", "feature_bytes", "block_features", "out_feature_bytes")}
{_fields("instance_count", "instances", "panel_count", "panels", "lane_offsets", "dense")}
{begin_ir("%lane_offsets", "%dense")}
  %one_panel = icmp eq i64 %panel_count, 1
  store <16 x i32> zeroinitializer, ptr %most
  call void @llvm.memset.p0.i64(ptr %planes, i8 0, i64 %plane_bytes, i1 false)
  call void @llvm.x86.ldtilecfg(ptr @tile_config)
  br label %instance
instance:
  %g = phi i64 [ 0, %entry ], [ %next_g, %instance_done ]
  %g4 = mul i64 %g, 4
  %offsets = getelementptr i64, ptr %instances, i64 %g4
  %x_offset = call i64 @word(ptr %offsets, i64 0)
  %w_offset = call i64 @word(ptr %offsets, i64 1)
  %out_offset = call i64 @word(ptr %offsets, i64 2)
  %adding = call i64 @word(ptr %offsets, i64 3)
  %adds = icmp ne i64 %adding, 0
  %x_g = getelementptr i8, ptr %x, i64 %x_offset
  %w_g = getelementptr i8, ptr %w, i64 %w_offset
  %out_g = getelementptr i8, ptr %out, i64 %out_offset
  br label %block
block:
  %f = phi i64 [ 0, %instance ], [ %next_f, %block_done ]
  %f_left = sub i64 %features, %f
  %count = call i64 @llvm.umin.i64(i64 %f_left, i64 %block_features)
  %f_way = mul i64 %f, %feature_bytes
  %w_f = getelementptr i8, ptr %w_g, i64 %f_way
  %out_way = mul i64 %f, %out_feature_bytes
  %out_f = getelementptr i8, ptr %out_g, i64 %out_way
  call void @pack_kernel(ptr %record, ptr %w_f, i64 %count, ptr %most)
  %again = icmp ne i64 %f, 0
  %keeps = and i1 %again, %one_panel
  br label %panel
panel:
  %p = phi i64 [ 0, %block ], [ %next_p, %multiply ]
  %panel_way = mul i64 %p, {PANEL_WORDS}
  %panel_at = getelementptr i64, ptr %panels, i64 %panel_way
  %panel_out = call i64 @word(ptr %panel_at, i64 1)
  %out_p = getelementptr i8, ptr %out_f, i64 %panel_out
  br i1 %keeps, label %multiply, label %load
load:
  call void @load_panel(ptr %record, ptr %x_g, ptr %panel_at, ptr %most)
  br label %multiply
multiply:
  call void @multiply_units(ptr %record, ptr %out_p, ptr %panel_at, i64 %count, i1 %adds, ptr %total, ptr %pending)
{again("p", "panel_count", "panel", "block_done")}
block_done:
{again("f", "features", "block", "instance_done", "%block_features")}
instance_done:
{again("g", "instance_count", "instance", "end")}
end:
  call void @finish(ptr %total, ptr %pending)
  call void @llvm.x86.tilerelease()
  %is_right = call i1 @within(ptr %most)
  ret i1 %is_right
}}
"""
