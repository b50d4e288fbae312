"""Native code of a convolution with adjacent groups, such as a depthwise one: a vector holds groups.

One function serves all convolutions of an element type. Every output is summed over the window and the features of its
group, a line of the window at a time; padding and the holes of base dilation are multiplied as zeros.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.ir.record_loads import RECORD_LOADS, again, read
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.record import Address, Listed, Record, Word, field_names, record
from spmd.shape import PrimitiveType

FUNCTION = "spmd_convolve_groups"
#: Number of vectors that are summed at a time, and their bytes.
_VECTORS, _VECTOR_BYTES = 4, 64


@record
class GroupRecord(Record):
    """x[n, h, w, c, g], w[i, j, c, f, g] and out[n, h, w, f, g] of these sizes; strides in bytes.

    Output (h, w) and element (i, j) of the window use padded coordinates first + h * stride + i * dilation of each
    dimension; a table has the offset of each in x, -1 for none.
    """

    x: Address
    w: Address
    out: Address
    groups: Word
    batch: Word
    features: Word
    channels: Word
    height: Word
    width: Word
    window_height: Word
    window_width: Word
    x_batch: Word
    x_channel: Word
    w_row: Word
    w_column: Word
    w_channel: Word
    w_feature: Word
    out_batch: Word
    out_row: Word
    out_column: Word
    out_feature: Word
    first_row: Word
    row_stride: Word
    row_dilation: Word
    first_column: Word
    column_stride: Word
    column_dilation: Word
    rows: Listed
    columns: Listed


@cache
def group_code(kind: PrimitiveType) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32 or f64, which takes the address of a GroupRecord."""
    return host_jit().compile(RECORD_LOADS + group_ir(kind), (FUNCTION,))


def group_ir(kind: PrimitiveType) -> str:
    t = {PrimitiveType.F32: "float", PrimitiveType.F64: "double"}[kind]
    lanes = _VECTOR_BYTES // kind.byte_size
    vector = f"<{lanes} x {t}>"
    suffix = f"v{lanes}f{8 * kind.byte_size}"
    each = range(_VECTORS)

    def lines(text: str) -> str:
        """Return ``text`` for every vector, with its number for #, and its offset for ##."""
        return "\n".join(
            text.replace("##", str(v * _VECTOR_BYTES)).replace("#", str(v)) for v in each
        )

    head = read(
        GroupRecord,
        *(name for name in field_names(GroupRecord) if name not in ("batch", "features")),
    )
    sums = "\n".join(
        f"  %sum{v} = phi {vector} [ zeroinitializer, %row ], [ %new{v}, %element ]" for v in each
    )
    totals = "\n".join(
        f"  %total{v} = phi {vector} [ zeroinitializer, %block ], [ %after{v}, %channel_done ]"
        for v in each
    )
    line_totals = "\n".join(
        f"  %before{v} = phi {vector} [ %total{v}, %channel ], [ %after{v}, %line_done ]"
        for v in each
    )
    counted = "\n".join(
        f"  %left{v} = sub i64 %left, {v * lanes}\n"
        f"  %mask{v} = call <{lanes} x i1> @lanes(i64 %left{v})"
        for v in each
    )
    return f"""
declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})
declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, <{lanes} x i1>)
declare {vector} @llvm.fmuladd.{suffix}({vector}, {vector}, {vector})
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define internal <{lanes} x i1> @lanes(i64 %count) alwaysinline {{
  %least = call i64 @llvm.smax.i64(i64 %count, i64 0)
  %most = call i64 @llvm.smin.i64(i64 %least, i64 {lanes})
  %narrow = trunc i64 %most to i32
  %one = insertelement <{lanes} x i32> poison, i32 %narrow, i32 0
  %all = shufflevector <{lanes} x i32> %one, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer
  %mask = icmp sgt <{lanes} x i32> %all, <{", ".join(f"i32 {i}" for i in range(lanes))}>
  ret <{lanes} x i1> %mask
}}

define internal void @one_output(ptr %record, ptr %x_n, ptr %w_f, ptr %to, i64 %h, i64 %v) noinline {{
entry:
{head}
  %h_way = mul i64 %h, %row_stride
  %h_first = add i64 %first_row, %h_way
  %v_way = mul i64 %v, %column_stride
  %v_first = add i64 %first_column, %v_way
  br label %block
block:
  %g = phi i64 [ 0, %entry ], [ %next_g, %block_done ]
  %left = sub i64 %groups, %g
{counted}
  %x_g = getelementptr {t}, ptr %x_n, i64 %g
  %w_g = getelementptr {t}, ptr %w_f, i64 %g
  %to_g = getelementptr {t}, ptr %to, i64 %g
  br label %channel
channel:
  %c = phi i64 [ 0, %block ], [ %next_c, %channel_done ]
{totals}
  %x_c_way = mul i64 %c, %x_channel
  %x_c = getelementptr i8, ptr %x_g, i64 %x_c_way
  %w_c_way = mul i64 %c, %w_channel
  %w_c = getelementptr i8, ptr %w_g, i64 %w_c_way
  br label %row
row:
  %i = phi i64 [ 0, %channel ], [ %next_i, %line_done ]
{line_totals}
  %i_way = mul i64 %i, %row_dilation
  %row_at = add i64 %h_first, %i_way
  %row_offset = call i64 @word(ptr %rows, i64 %row_at)
  %is_row = icmp sge i64 %row_offset, 0
  %x_i = getelementptr i8, ptr %x_c, i64 %row_offset
  %w_i_way = mul i64 %i, %w_row
  %w_i = getelementptr i8, ptr %w_c, i64 %w_i_way
  br label %element
element:
  %j = phi i64 [ 0, %row ], [ %next_j, %element ]
{sums}
  %j_way = mul i64 %j, %column_dilation
  %column_at = add i64 %v_first, %j_way
  %column_offset = call i64 @word(ptr %columns, i64 %column_at)
  %is_column = icmp sge i64 %column_offset, 0
  %is_there = and i1 %is_row, %is_column
  %there_one = insertelement <{lanes} x i1> poison, i1 %is_there, i32 0
  %there = shufflevector <{lanes} x i1> %there_one, <{lanes} x i1> poison, <{
        lanes
    } x i32> zeroinitializer
  %x_j = getelementptr i8, ptr %x_i, i64 %column_offset
  %w_j_way = mul i64 %j, %w_column
  %w_j = getelementptr i8, ptr %w_i, i64 %w_j_way
{
        lines(
            f'''  %x_at# = getelementptr i8, ptr %x_j, i64 ##
  %w_at# = getelementptr i8, ptr %w_j, i64 ##
  %seen# = and <{lanes} x i1> %mask#, %there
  %a# = call {vector} @llvm.masked.load.{suffix}.p0(
    ptr %x_at#, i32 {kind.byte_size}, <{lanes} x i1> %seen#, {vector} zeroinitializer)
  %b# = call {vector} @llvm.masked.load.{suffix}.p0(
    ptr %w_at#, i32 {kind.byte_size}, <{lanes} x i1> %mask#, {vector} zeroinitializer)
  %new# = call {vector} @llvm.fmuladd.{suffix}({vector} %a#, {vector} %b#, {vector} %sum#)'''
        )
    }
{again("j", "window_width", "element", "line_done")}
line_done:
{lines(f"  %after# = fadd {vector} %before#, %new#")}
{again("i", "window_height", "row", "channel_done")}
channel_done:
{again("c", "channels", "channel", "block_done")}
block_done:
{
        lines(
            f'''  %to# = getelementptr i8, ptr %to_g, i64 ##
  call void @llvm.masked.store.{suffix}.p0({vector} %after#, ptr %to#, i32 {kind.byte_size}, <{lanes} x i1> %mask#)'''
        )
    }
  %next_g = add nuw nsw i64 %g, {_VECTORS * lanes}
  %more_g = icmp ult i64 %next_g, %groups
  br i1 %more_g, label %block, label %end
end:
  ret void
}}

define void @{FUNCTION}(ptr %record) {{
entry:
{read(GroupRecord, "x", "w", "out", "batch", "features", "height", "width", "x_batch", "w_feature")}
{read(GroupRecord, "out_batch", "out_row", "out_column", "out_feature")}
  br label %image
image:
  %n = phi i64 [ 0, %entry ], [ %next_n, %image_done ]
  %x_way = mul i64 %n, %x_batch
  %x_n = getelementptr i8, ptr %x, i64 %x_way
  %out_way = mul i64 %n, %out_batch
  %out_n = getelementptr i8, ptr %out, i64 %out_way
  br label %feature
feature:
  %f = phi i64 [ 0, %image ], [ %next_f, %feature_done ]
  %w_way = mul i64 %f, %w_feature
  %w_f = getelementptr i8, ptr %w, i64 %w_way
  %f_way = mul i64 %f, %out_feature
  %out_f = getelementptr i8, ptr %out_n, i64 %f_way
  br label %row
row:
  %h = phi i64 [ 0, %feature ], [ %next_h, %row_done ]
  %h_way = mul i64 %h, %out_row
  %out_h = getelementptr i8, ptr %out_f, i64 %h_way
  br label %column
column:
  %v = phi i64 [ 0, %row ], [ %next_v, %column ]
  %v_way = mul i64 %v, %out_column
  %to = getelementptr i8, ptr %out_h, i64 %v_way
  call void @one_output(ptr %record, ptr %x_n, ptr %w_f, ptr %to, i64 %h, i64 %v)
{again("v", "width", "column", "row_done")}
row_done:
{again("h", "height", "row", "feature_done")}
feature_done:
{again("f", "features", "feature", "image_done")}
image_done:
{again("n", "batch", "image", "end")}
end:
  ret void
}}
"""
