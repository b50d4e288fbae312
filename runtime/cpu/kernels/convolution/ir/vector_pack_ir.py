"""Native code that brings convolutions' operands into the form in which vectors multiply them."""

from __future__ import annotations

from runtime.codegen.ir.record_words import RecordLayout, again
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import ITEM, PITCH, vector_type
from runtime.cpu.kernels.convolution.ir.vector_offsets_ir import PLACE, UNIT
from runtime.program.records.convolution import ACROSS, VectorForm


def columns_ir(form: VectorForm) -> str:
    """``@pack_columns``: a line of w, one vector beside the other, zeros behind the last column."""
    n, kind, mask = form.lanes, vector_type(form), f"<{form.lanes} x i1>"
    numbers = ", ".join(f"i64 {i}" for i in range(n))
    each = range(ACROSS)
    masks = "\n".join(
        f"""  %left{v} = sub i64 %columns, {v * n}
  %mask{v} = call {mask} @lanes(i64 %left{v})
  %to{v} = getelementptr float, ptr %to, i64 {v * n}"""
        for v in each
    )
    dense = "\n".join(
        f"""  %from{v} = getelementptr float, ptr %from, i64 {v * n}
  %d{v} = call {kind} @llvm.masked.load.v{n}f32.p0(ptr %from{v}, i32 {ITEM}, {mask} %mask{v}, {kind} zeroinitializer)
  store {kind} %d{v}, ptr %to{v}, align {ITEM * n}"""
        for v in each
    )
    apart = "\n".join(
        f"""  %first{v} = mul i64 %step, {v * n}
  %g{v} = getelementptr i8, ptr %from, i64 %first{v}
  %at{v} = getelementptr i8, ptr %g{v}, <{n} x i64> %ways
  %s{v} = call {kind} @llvm.masked.gather.v{n}f32.v{n}p0(
    <{n} x ptr> %at{v}, i32 {ITEM}, {mask} %mask{v}, {kind} zeroinitializer)
  store {kind} %s{v}, ptr %to{v}, align {ITEM * n}"""
        for v in each
    )
    return f"""
declare {kind} @llvm.masked.gather.v{n}f32.v{n}p0(<{n} x ptr>, i32, {mask}, {kind})

define internal void @pack_columns(ptr %to, ptr %from, i64 %step, i64 %columns) alwaysinline {{
{masks}
  %is_dense = icmp eq i64 %step, {ITEM}
  br i1 %is_dense, label %dense, label %apart
dense:
{dense}
  ret void
apart:
  %one = insertelement <{n} x i64> poison, i64 %step, i32 0
  %all = shufflevector <{n} x i64> %one, <{n} x i64> poison, <{n} x i32> zeroinitializer
  %ways = mul <{n} x i64> %all, <{numbers}>
{apart}
  ret void
}}
"""


def rows_ir(form: VectorForm, record: RecordLayout) -> str:
    """``@pack_w`` and ``@pack_rows`` of units whose channels lie without gaps in the input.

    Whole vectors are stored, behind the end of what is copied or cleared, too: what follows comes later.
    """
    n, kind, mask = form.lanes, vector_type(form), f"<{form.lanes} x i1>"
    return f"""
define internal void @copy(ptr %to, ptr %from, i64 %count) alwaysinline {{
entry:
  %is_long = icmp uge i64 %count, {n}
  br i1 %is_long, label %loop, label %rest
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %source = getelementptr float, ptr %from, i64 %i
  %target = getelementptr float, ptr %to, i64 %i
  %value = load {kind}, ptr %source, align {ITEM}
  store {kind} %value, ptr %target, align {ITEM}
  %next = add nuw nsw i64 %i, {n}
  %reach = add nuw nsw i64 %next, {n}
  %more = icmp ule i64 %reach, %count
  br i1 %more, label %loop, label %rest
rest:
  %done = phi i64 [ 0, %entry ], [ %next, %loop ]
  %left = sub i64 %count, %done
  %is_left = icmp ugt i64 %left, 0
  br i1 %is_left, label %last, label %end
last:
  %mask = call {mask} @lanes(i64 %left)
  %last_source = getelementptr float, ptr %from, i64 %done
  %last_target = getelementptr float, ptr %to, i64 %done
  %last_value = call {kind} @llvm.masked.load.v{n}f32.p0(
    ptr %last_source, i32 {ITEM}, {mask} %mask, {kind} zeroinitializer)
  store {kind} %last_value, ptr %last_target, align {ITEM}
  br label %end
end:
  ret void
}}

define internal void @clear(ptr %to, i64 %count) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %target = getelementptr float, ptr %to, i64 %i
  store {kind} zeroinitializer, ptr %target, align {ITEM}
  %next = add nuw nsw i64 %i, {n}
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}

define internal void @pack_w(ptr %record, ptr %w, ptr %units, i64 %unit_count, i64 %columns) noinline {{
entry:
{record.read("packed", "feature_bytes", "channel_bytes")}
  %panel_way = mul i64 %feature_bytes, {form.columns}
  br label %panel
panel:
  %f = phi i64 [ 0, %entry ], [ %next_f, %panel_done ]
  %w_f = phi ptr [ %w, %entry ], [ %next_w, %panel_done ]
  %to_f = phi ptr [ %packed, %entry ], [ %next_to, %panel_done ]
  %left = sub i64 %columns, %f
  br label %unit
unit:
  %u = phi i64 [ 0, %panel ], [ %next_u, %unit_done ]
  %to_u = phi ptr [ %to_f, %panel ], [ %next_to, %unit_done ]
  %number = mul i64 %u, {UNIT}
  %words = getelementptr i64, ptr %units, i64 %number
  %w_way = call i64 @word(ptr %words, i64 4)
  %taps = call i64 @word(ptr %words, i64 5)
  %length = call i64 @word(ptr %words, i64 6)
  %tap_bytes = call i64 @word(ptr %words, i64 7)
  %w_u = getelementptr i8, ptr %w_f, i64 %w_way
  br label %tap
tap:
  %j = phi i64 [ 0, %unit ], [ %next_j, %tap_done ]
  %from_j = phi ptr [ %w_u, %unit ], [ %next_from_j, %tap_done ]
  %to_j = phi ptr [ %to_u, %unit ], [ %next_to, %tap_done ]
  br label %channel
channel:
  %c = phi i64 [ 0, %tap ], [ %next_c, %packed_one ]
  %from = phi ptr [ %from_j, %tap ], [ %next_from, %packed_one ]
  %to = phi ptr [ %to_j, %tap ], [ %next_to, %packed_one ]
  call void @pack_columns(ptr %to, ptr %from, i64 %feature_bytes, i64 %left)
  br label %packed_one
packed_one:
  %next_from = getelementptr i8, ptr %from, i64 %channel_bytes
  %next_to = getelementptr float, ptr %to, i64 {form.columns}
{again("c", "length", "channel", "tap_done")}
tap_done:
  %next_from_j = getelementptr i8, ptr %from_j, i64 %tap_bytes
{again("j", "taps", "tap", "unit_done")}
unit_done:
{again("u", "unit_count", "unit", "panel_done")}
panel_done:
  %next_w = getelementptr i8, ptr %w_f, i64 %panel_way
{again("f", "columns", "panel", "end", form.columns)}
end:
  ret void
}}

define internal void @pack_rows(
    ptr %record, ptr %x, ptr %out, i64 %first, i64 %count, ptr %place, ptr %units, i64 %unit_count,
    ptr %rows) noinline {{
entry:
{record.read("left", "high0", "high1", "high2", "whole0", "whole1", "whole2")}
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %next_r, %stepped ]
  %way = mul i64 %r, {PITCH * ITEM}
  %to_row = getelementptr i8, ptr %left, i64 %way
  %bytes = call i64 @word(ptr %place, i64 1)
  %i0 = call i64 @word(ptr %place, i64 2)
  %i1 = call i64 @word(ptr %place, i64 3)
  %i2 = call i64 @word(ptr %place, i64 4)
  %other = call i64 @word(ptr %place, i64 5)
  %x_row = getelementptr i8, ptr %x, i64 %bytes
  %out_row = getelementptr i8, ptr %out, i64 %other
  %slot = getelementptr ptr, ptr %rows, i64 %r
  store ptr %out_row, ptr %slot
  %is_whole0 = icmp ult i64 %i0, %whole0
  %is_whole1 = icmp ult i64 %i1, %whole1
  %is_whole2 = icmp ult i64 %i2, %whole2
  %is_whole01 = and i1 %is_whole0, %is_whole1
  %is_whole = and i1 %is_whole01, %is_whole2
  br i1 %is_whole, label %whole, label %unit
whole:
  %v = phi i64 [ 0, %row ], [ %next_v, %whole_done ]
  %to_v = phi ptr [ %to_row, %row ], [ %next_to_v, %whole_done ]
  %number_v = mul i64 %v, {UNIT}
  %words_v = getelementptr i64, ptr %units, i64 %number_v
  %v_bytes = call i64 @word(ptr %words_v, i64 0)
  %v_all = call i64 @word(ptr %words_v, i64 8)
  %from_v = getelementptr i8, ptr %x_row, i64 %v_bytes
  call void @copy(ptr %to_v, ptr %from_v, i64 %v_all)
  br label %whole_done
whole_done:
  %next_to_v = getelementptr float, ptr %to_v, i64 %v_all
{again("v", "unit_count", "whole", "row_done")}
unit:
  %u = phi i64 [ 0, %row ], [ %next_u, %unit_done ]
  %to = phi ptr [ %to_row, %row ], [ %next_to, %unit_done ]
  %number = mul i64 %u, {UNIT}
  %words = getelementptr i64, ptr %units, i64 %number
  %u_bytes = call i64 @word(ptr %words, i64 0)
  %d0 = call i64 @word(ptr %words, i64 1)
  %d1 = call i64 @word(ptr %words, i64 2)
  %d2 = call i64 @word(ptr %words, i64 3)
  %taps = call i64 @word(ptr %words, i64 5)
  %length = call i64 @word(ptr %words, i64 6)
  %at0 = add i64 %i0, %d0
  %at1 = add i64 %i1, %d1
  %at2 = add i64 %i2, %d2
  %in0 = icmp ult i64 %at0, %high0
  %in1 = icmp ult i64 %at1, %high1
  %in01 = and i1 %in0, %in1
  %before = sub i64 0, %at2
  %before_most = call i64 @llvm.smax.i64(i64 %before, i64 0)
  %head_taps = call i64 @llvm.smin.i64(i64 %before_most, i64 %taps)
  %until = sub i64 %high2, %at2
  %until_most = call i64 @llvm.smin.i64(i64 %until, i64 %taps)
  %end_taps = call i64 @llvm.smax.i64(i64 %until_most, i64 %head_taps)
  %head_in = select i1 %in01, i64 %head_taps, i64 0
  %end_in = select i1 %in01, i64 %end_taps, i64 0
  %head = mul i64 %head_in, %length
  %stop = mul i64 %end_in, %length
  %all = mul i64 %taps, %length
  %next_to = getelementptr float, ptr %to, i64 %all
  %is_head = icmp ugt i64 %head, 0
  br i1 %is_head, label %clear_head, label %body
clear_head:
  call void @clear(ptr %to, i64 %head)
  br label %body
body:
  %x_u = getelementptr i8, ptr %x_row, i64 %u_bytes
  %from = getelementptr float, ptr %x_u, i64 %head
  %to_body = getelementptr float, ptr %to, i64 %head
  %length_body = sub i64 %stop, %head
  call void @copy(ptr %to_body, ptr %from, i64 %length_body)
  %tail = sub i64 %all, %stop
  %is_tail = icmp ugt i64 %tail, 0
  br i1 %is_tail, label %clear_tail, label %unit_done
clear_tail:
  %to_tail = getelementptr float, ptr %to, i64 %stop
  call void @clear(ptr %to_tail, i64 %tail)
  br label %unit_done
unit_done:
{again("u", "unit_count", "unit", "row_done")}
row_done:
  %after = add i64 %first, %r
  %next_number = add i64 %after, 1
  call void @step(ptr %record, i64 %next_number, ptr %place)
  br label %stepped
stepped:
{again("r", "count", "row", "end")}
end:
  ret void
}}
"""


def depth_ir(form: VectorForm, record: RecordLayout) -> str:
    """``@walk``, ``@pack_w``, ``@meet`` and ``@pack_left`` of runs of rows that lie without gaps in the input."""
    n, kind, mask = form.lanes, vector_type(form), f"<{form.lanes} x i1>"
    return f"""
define internal void @walk(ptr %record, i64 %first, i64 %depth, ptr %place) noinline {{
entry:
{record.read("table")}
  call void @seek(ptr %record, i64 %first, ptr %place)
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next_k, %stepped ]
  %number = mul i64 %k, {PLACE}
  %to = getelementptr i64, ptr %table, i64 %number
  %from = getelementptr i64, ptr %place, i64 1
  call void @llvm.memcpy.inline.p0.p0.i64(ptr align 8 %to, ptr align 8 %from, i64 {8 * PLACE}, i1 false)
  %after = add i64 %first, %k
  %next_number = add i64 %after, 1
  call void @step(ptr %record, i64 %next_number, ptr %place)
  br label %stepped
stepped:
{again("k", "depth", "loop", "end")}
end:
  ret void
}}
declare void @llvm.memcpy.inline.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @pack_w(ptr %record, ptr %w, i64 %depth, i64 %columns) noinline {{
entry:
{record.read("packed", "table", "feature_bytes")}
  %panel_way = mul i64 %feature_bytes, {form.columns}
  br label %panel
panel:
  %f = phi i64 [ 0, %entry ], [ %next_f, %panel_done ]
  %w_f = phi ptr [ %w, %entry ], [ %next_w, %panel_done ]
  %to_f = phi ptr [ %packed, %entry ], [ %next_to, %panel_done ]
  %left = sub i64 %columns, %f
  br label %loop
loop:
  %k = phi i64 [ 0, %panel ], [ %next_k, %packed_one ]
  %to = phi ptr [ %to_f, %panel ], [ %next_to, %packed_one ]
  %number = mul i64 %k, {PLACE}
  %words = getelementptr i64, ptr %table, i64 %number
  %way = call i64 @word(ptr %words, i64 4)
  %from = getelementptr i8, ptr %w_f, i64 %way
  call void @pack_columns(ptr %to, ptr %from, i64 %feature_bytes, i64 %left)
  br label %packed_one
packed_one:
  %next_to = getelementptr float, ptr %to, i64 {form.columns}
{again("k", "depth", "loop", "panel_done")}
panel_done:
  %next_w = getelementptr i8, ptr %w_f, i64 %panel_way
{again("f", "columns", "panel", "end", form.columns)}
end:
  ret void
}}

; where the run of %unit begins at each depth, or null
define internal void @meet(ptr %record, ptr %x, ptr %unit, i64 %depth) noinline {{
entry:
{record.read("table", "met", "high0", "high1", "high2")}
  %u_bytes = call i64 @word(ptr %unit, i64 0)
  %d0 = call i64 @word(ptr %unit, i64 1)
  %d1 = call i64 @word(ptr %unit, i64 2)
  %d2 = call i64 @word(ptr %unit, i64 3)
  %x_u = getelementptr i8, ptr %x, i64 %u_bytes
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next_k, %loop ]
  %number = mul i64 %k, {PLACE}
  %words = getelementptr i64, ptr %table, i64 %number
  %bytes = call i64 @word(ptr %words, i64 0)
  %i0 = call i64 @word(ptr %words, i64 1)
  %i1 = call i64 @word(ptr %words, i64 2)
  %i2 = call i64 @word(ptr %words, i64 3)
  %at0 = add i64 %i0, %d0
  %at1 = add i64 %i1, %d1
  %at2 = add i64 %i2, %d2
  %in0 = icmp ult i64 %at0, %high0
  %in1 = icmp ult i64 %at1, %high1
  %in2 = icmp ult i64 %at2, %high2
  %in01 = and i1 %in0, %in1
  %in = and i1 %in01, %in2
  %from = getelementptr i8, ptr %x_u, i64 %bytes
  %met_or_not = select i1 %in, ptr %from, ptr null
  %slot = getelementptr ptr, ptr %met, i64 %k
  store ptr %met_or_not, ptr %slot
{again("k", "depth", "loop", "end")}
end:
  ret void
}}

; %count rows, or whole vectors where the run goes on as far
define internal void @pack_left(ptr %record, i64 %depth, i64 %first, i64 %count) noinline {{
entry:
{record.read("left", "met", "run")}
  %reach = add i64 %first, {n}
  %is_whole = icmp ule i64 %reach, %run
  %mask = call {mask} @lanes(i64 %count)
  br i1 %is_whole, label %whole, label %part
whole:
  %v = phi i64 [ 0, %entry ], [ %next_v, %whole_done ]
  %slot_v = getelementptr ptr, ptr %met, i64 %v
  %start_v = load ptr, ptr %slot_v
  %is_there_v = icmp ne ptr %start_v, null
  br i1 %is_there_v, label %there, label %whole_done
there:
  %from_v = getelementptr float, ptr %start_v, i64 %first
  %loaded = load {kind}, ptr %from_v, align {ITEM}
  br label %whole_done
whole_done:
  %value_v = phi {kind} [ zeroinitializer, %whole ], [ %loaded, %there ]
  %place_v = mul i64 %v, {n}
  %to_v = getelementptr float, ptr %left, i64 %place_v
  store {kind} %value_v, ptr %to_v, align {ITEM * n}
{again("v", "depth", "whole", "end")}
part:
  %k = phi i64 [ 0, %entry ], [ %next_k, %part ]
  %slot = getelementptr ptr, ptr %met, i64 %k
  %start = load ptr, ptr %slot
  %is_there = icmp ne ptr %start, null
  %seen = select i1 %is_there, {mask} %mask, {mask} zeroinitializer
  %from = getelementptr float, ptr %start, i64 %first
  %value = call {kind} @llvm.masked.load.v{n}f32.p0(ptr %from, i32 {ITEM}, {mask} %seen, {kind} zeroinitializer)
  %place = mul i64 %k, {n}
  %to = getelementptr float, ptr %left, i64 %place
  store {kind} %value, ptr %to, align {ITEM * n}
{again("k", "depth", "part", "end")}
end:
  ret void
}}
"""
