"""Native code of a convolution whose window is large and whose output is small: the gradient of a kernel.

    out[c, o, f] = sum over n, j of x[c, j * dilation + o * stride - padding, n] * w[j, n, f]

The depth consists of positions j of w and pairs of images n: a line of w at a time, of a group of pairs that fills
tiles. w is split and packed into tiles, features by depth. x is split into planes padded with zeros, in which the
distance between an output o and the positions of a line is constant, so that the right operand of every product of
tiles is read from the planes without packing. Lines of padding are skipped. Sums are [feature, channel] and are
transposed before they are stored.
"""

from __future__ import annotations

from functools import cache, partial

from runtime.codegen.ir.record_loads import RECORD_LOADS, again, read
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.codegen.record import Address, Listed, Record, Word, record
from runtime.cpu.kernels.convolution.ir.tile_block_ir import product_ir
from runtime.cpu.kernels.convolution.ir.tile_gradient_pack_ir import PANEL_WORDS, packing_ir
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import TILES, or_otherwise_ir
from runtime.cpu.kernels.convolution.ir.tile_store_ir import begin_ir
from runtime.cpu.kernels.gemm.tile_types import TILE_BYTES

FUNCTION = "spmd_convolve_gradient"


@record
class GradientRecord(Record):
    """Record of one convolution; offsets and strides are in bytes.

    w: a line of a group of ``group_pairs`` pairs of images is ``line_steps`` steps; positions: offsets of its words, -1
    for none. x: line l of a group in the planes is line l * line_unit + (first line of the panel) of the images, which
    have ``lines`` lines; it consists of runs of ``run_elements`` elements, or, if that is 0, of an instance's channels.
    instances: (x, w, out, channels, features). panels: (offsets of images in x and w, numbers of images, groups and
    lines of w, first line of x), then for each output along the rows the first of its steps in the tables and their
    number. phases, of the planes' columns: (offset of the first column in a line of x, in the planes, runs). taps:
    (output along the rows, offset in the planes, columns of its product or 0 for an instance's channels, first of
    ``offsets``). left_steps, right_steps: offsets of each step's tiles. offsets: of each column of a tap in out, -1 for
    none; lane_offsets: of 32 features there; dense: these are contiguous.
    """

    x: Address
    w: Address
    out: Address
    left: Address
    plane: Address
    otherwise: Address
    otherwise_record: Address
    x_image_bytes: Word
    w_image_bytes: Word
    group_pairs: Word
    w_line_bytes: Word
    line_steps: Word
    panel_lines: Word
    panel_bytes: Word
    plane_bytes: Word
    part_bytes: Word
    row_bytes: Word
    plane_lines: Word
    plane_line_bytes: Word
    lines: Word
    line_bytes: Word
    line_unit: Word
    run_elements: Word
    run_bytes: Word
    run_plane_bytes: Word
    plane_pair_bytes: Word
    out_feature_bytes: Word
    dense: Word
    instance_count: Word
    panel_count: Word
    phase_count: Word
    tap_count: Word
    panel_stride: Word
    instances: Listed
    panels: Listed
    phases: Listed
    taps: Listed
    positions: Listed
    left_steps: Listed
    right_steps: Listed
    offsets: Listed
    lane_offsets: Listed


#: Sizes of an instance and of a tap in words.
INSTANCE_WORDS, TAP_WORDS = 5, 4
_fields = partial(read, GradientRecord)


@cache
def gradient_code() -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32, which takes the address of a GradientRecord."""
    return host_jit().compile(
        RECORD_LOADS
        + TILES
        + product_ir(transposed=True)
        + packing_ir(GradientRecord)
        + _IR
        + or_otherwise_ir(FUNCTION, _fields),
        (FUNCTION,),
        passes=Passes.TIDY,
    )


_IR = f"""
; all products of one panel
define internal void @multiply_panel(ptr %record, ptr %out, i64 %channels, i64 %features, ptr %panel, i1 %adds,
    ptr %total, ptr %pending) noinline {{
entry:
{_fields("left", "plane", "panel_bytes", "part_bytes", "row_bytes", "out_feature_bytes")}
{_fields("tap_count", "taps", "left_steps", "right_steps", "offsets")}
  %outputs = getelementptr i64, ptr %panel, i64 {PANEL_WORDS}
  br label %tap
tap:
  %t = phi i64 [ 0, %entry ], [ %next_t, %tap_done ]
  %t_way = mul i64 %t, {TAP_WORDS}
  %tap_words = getelementptr i64, ptr %taps, i64 %t_way
  %output = call i64 @word(ptr %tap_words, i64 0)
  %plane_offset = call i64 @word(ptr %tap_words, i64 1)
  %width = call i64 @word(ptr %tap_words, i64 2)
  %first_entry = call i64 @word(ptr %tap_words, i64 3)
  %output_way = shl i64 %output, 1
  %output_words = getelementptr i64, ptr %outputs, i64 %output_way
  %first_step = call i64 @word(ptr %output_words, i64 0)
  %steps = call i64 @word(ptr %output_words, i64 1)
  %left_t = getelementptr i64, ptr %left_steps, i64 %first_step
  %right_t = getelementptr i64, ptr %right_steps, i64 %first_step
  %plane_t = getelementptr i8, ptr %plane, i64 %plane_offset
  %offsets_t = getelementptr i64, ptr %offsets, i64 %first_entry
  %by_channels = icmp eq i64 %width, 0
  %columns = select i1 %by_channels, i64 %channels, i64 %width
  br label %column
column:
  %c = phi i64 [ 0, %tap ], [ %next_c, %column_done ]
  %c_left = sub i64 %columns, %c
  %b = getelementptr i32, ptr %plane_t, i64 %c
  %offsets_c = getelementptr i64, ptr %offsets_t, i64 %c
  br label %feature
feature:
  %f = phi i64 [ 0, %column ], [ %next_f, %feature ]
  %f_left = sub i64 %features, %f
  %half = lshr i64 %f, 5
  %half_way = mul i64 %half, %panel_bytes
  %a = getelementptr i8, ptr %left, i64 %half_way
  %f_way = mul i64 %f, %out_feature_bytes
  %to = getelementptr i8, ptr %out, i64 %f_way
  call void @product(ptr %a, i64 64, i64 {TILE_BYTES}, i64 {2 * TILE_BYTES}, ptr %left_t,
    ptr %b, i64 %row_bytes, i64 64, i64 %part_bytes, ptr %right_t, i64 %steps, ptr %total, ptr %pending,
    ptr %to, ptr %offsets_c, i64 %f_left, i64 %c_left, i1 %adds)
{again("f", "features", "feature", "column_done", 32)}
column_done:
{again("c", "columns", "column", "tap_done", 32)}
tap_done:
{again("t", "tap_count", "tap", "end")}
end:
  ret void
}}

define internal i1 @convolve(ptr %record) noinline {{
entry:
  %most = alloca <16 x i32>, align 64
  %rows = alloca [{2 * TILE_BYTES} x i8], align 64
{_fields("x", "w", "out", "plane", "plane_bytes", "instance_count", "instances")}
{_fields("panel_count", "panels", "panel_stride", "lane_offsets", "dense")}
{begin_ir("%lane_offsets", "%dense")}
  store <16 x i32> zeroinitializer, ptr %most
  call void @llvm.memset.p0.i64(ptr %plane, i8 0, i64 %plane_bytes, i1 false)
  call void @llvm.x86.ldtilecfg(ptr @tile_config)
  br label %instance
instance:
  %g = phi i64 [ 0, %entry ], [ %next_g, %instance_done ]
  %g_way = mul i64 %g, {INSTANCE_WORDS}
  %instance_words = getelementptr i64, ptr %instances, i64 %g_way
  %x_offset = call i64 @word(ptr %instance_words, i64 0)
  %w_offset = call i64 @word(ptr %instance_words, i64 1)
  %out_offset = call i64 @word(ptr %instance_words, i64 2)
  %channels = call i64 @word(ptr %instance_words, i64 3)
  %features = call i64 @word(ptr %instance_words, i64 4)
  %x_g = getelementptr i8, ptr %x, i64 %x_offset
  %w_g = getelementptr i8, ptr %w, i64 %w_offset
  %out_g = getelementptr i8, ptr %out, i64 %out_offset
  br label %panel
panel:
  %p = phi i64 [ 0, %instance ], [ %next_p, %panel ]
  %panel_way = mul i64 %p, %panel_stride
  %panel_at = getelementptr i64, ptr %panels, i64 %panel_way
  call void @pack_left(ptr %record, ptr %w_g, i64 %features, ptr %panel_at, ptr %rows, ptr %most)
  call void @load_plane(ptr %record, ptr %x_g, i64 %channels, ptr %panel_at, ptr %most)
  %adds = icmp ne i64 %p, 0
  call void @multiply_panel(ptr %record, ptr %out_g, i64 %channels, i64 %features, ptr %panel_at, i1 %adds, ptr %total,
    ptr %pending)
{again("p", "panel_count", "panel", "instance_done")}
instance_done:
{again("g", "instance_count", "instance", "end")}
end:
  call void @finish(ptr %total, ptr %pending)
  call void @llvm.x86.tilerelease()
  %is_right = call i1 @within(ptr %most)
  ret i1 %is_right
}}
"""
