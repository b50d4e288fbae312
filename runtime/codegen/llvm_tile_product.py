"""Native code of matrix products on the tile unit: packed in blocks that near caches hold, summed panel by panel.

For each block of columns of rhs, for each block of the depth: pack that part of rhs; for 32 rows of lhs at a time, pack
them, multiply them with each packed panel, and write or add up 32 by 32 elements of the result, which is done among the
instructions that multiply the next ones. Packed operands are on the stack, about 1 MiB of it, so that a step allocates
nothing.

f32 parts and their products may not become so small that the unit, which takes denormal numbers for zero, would lose
what f32 holds: packing multiplies by 2^24, and results by 2^-48. Then parts of the smallest denormal are normal, and
products lost are 2^-24 of f32's smallest number. What is too large for that, infinite or not a number shows while
packing, and is computed otherwise.
"""

from __future__ import annotations

from runtime.codegen.llvm_tile_finish import finish_ir
from runtime.codegen.llvm_tile_multiply import multiply_ir
from runtime.codegen.llvm_tile_pack import pack_function, pack_ir
from runtime.codegen.llvm_tile_record import record_ir
from runtime.codegen.llvm_tiles import (
    BLOCK_BYTES,
    DECLARATIONS,
    LINES,
    PANEL,
    TileForm,
)
from runtime.codegen.llvm_words import WORDS
from spmd.shape import PrimitiveType

#: Bytes for packed columns of rhs: well inside of a second-level cache of 2 MiB, together with what else is walked.
_RHS_BYTES = 768 << 10
#: 2^24 and 2^-48 as LLVM writes floats.
SCALE, UNSCALE, ONE = "0x4170000000000000", "0x3CF0000000000000", "0x3FF0000000000000"
#: Of the sum of two exponents as f32 stores them and the bits of a depth: beyond it sums might not be finite.
_MOST_EXPONENT = 376


def most_depth(form: TileForm) -> int:
    """Of a block; a result narrower than the sum cannot be added up over several."""
    if max(form.parts, form.rhs_parts) > 1:
        return 2048 if form.result is PrimitiveType.BF16 else 512
    return 8192 // (4 // form.group)


def product_ir(form: TileForm, *, instead: bool) -> str:
    """``@product(record, scale, unscale, checked)``, true if it was computed, all of it.

    Where ``checked`` finds numbers beyond the unit's range, ``@instead`` (llvm_tile_record.py) computes that block, if
    there is one; otherwise the product ends as false.
    """
    step = form.step_depth
    main = _PRODUCT.format(
        setup=record_ir(),
        rhs_bytes=_RHS_BYTES,
        lhs_bytes=most_depth(form) // step * form.step_bytes,
        block=BLOCK_BYTES,
        lhs_item=form.lhs.byte_size,
        rhs_item=form.rhs.byte_size,
        pack_lhs=pack_function(form.lhs),
        pack_rhs=pack_function(form.rhs),
        result_size=form.result.byte_size,
        most_depth=most_depth(form),
        step=step,
        step_less=step - 1,
        rhs_step_bytes=form.rhs_step_bytes,
        panel=PANEL,
        lines=LINES,
        before=_BEFORE,
        check=_CHECK.format(most=_MOST_EXPONENT) if form.is_float else "  br label %columns",
        otherwise=_INSTEAD if instead else "  br label %refused",
    )
    parts = (
        WORDS,
        DECLARATIONS,
        pack_ir(form),
        multiply_ir(form),
        finish_ir(form),
        _LARGEST,
        main,
    )
    return "".join(parts)


_LARGEST = f"""
declare i16 @llvm.vector.reduce.umax.v{2 * LINES}i16(<{2 * LINES} x i16>)
declare i64 @llvm.ctlz.i64(i64, i1)

; the exponent of the largest of what was packed, as f32 stores it
define internal i64 @largest(ptr %most) {{
  %all = load <{2 * LINES} x i16>, ptr %most, align 64
  %one = call i16 @llvm.vector.reduce.umax.v{2 * LINES}i16(<{2 * LINES} x i16> %all)
  %exponent = lshr i16 %one, 7
  %wide = zext i16 %exponent to i64
  ret i64 %wide
}}
"""


_CHECK = """
  %lhs_largest = call i64 @largest(ptr %lhs_most)
  %rhs_largest = call i64 @largest(ptr %rhs_most)
  %zeros = call i64 @llvm.ctlz.i64(i64 %depth, i1 true)
  %depth_bits = sub i64 64, %zeros
  %exponents = add i64 %lhs_largest, %rhs_largest
  %magnitude = add i64 %exponents, %depth_bits
  %lhs_finite = icmp ult i64 %lhs_largest, 255
  %rhs_finite = icmp ult i64 %rhs_largest, 255
  %small = icmp ult i64 %magnitude, {most}
  %finite = and i1 %lhs_finite, %rhs_finite
  %fits = and i1 %finite, %small
  %unchecked = xor i1 %checked, true
  %fine = or i1 %fits, %unchecked
  br i1 %fine, label %columns, label %otherwise
"""

_INSTEAD = """
  call void @instead(ptr %record, i64 %i, i64 %j, i64 %d, i64 %rows, i64 %width, i64 %depth, i1 %add)
  br label %rows_done
"""

#: The block of the result that is finished while the unit is at the next one.
_BEFORE = """ptr %total, ptr %to_before, i64 %out_row,
    i64 %rows_before, i64 %columns_before, i1 %add, float %unscale"""

_PRODUCT = """
define internal i1 @product(ptr %record, float %scale, float %unscale, i1 %checked) noinline {{
entry:
  %rhs_packed = alloca [{rhs_bytes} x i8], align 4096
  %lhs_packed = alloca [{lhs_bytes} x i8], align 4096
  %total = alloca [{block} x i8], align 64
  %lhs_most = alloca [64 x i8], align 64
  %rhs_most = alloca [64 x i8], align 64
{setup}
  call void @llvm.x86.ldtilecfg(ptr @tile_config)
  %adds_at_all = icmp ne i64 %adds, 0
  %lhs_turn = icmp ne i64 %lhs_depth, {lhs_item}
  %rhs_turn = icmp eq i64 %rhs_depth, {rhs_item}
  ; blocks of the depth of about the same size, and as many columns as then have room
  %k_more = add i64 %k, {most_depth}
  %k_less = sub i64 %k_more, 1
  %blocks = udiv i64 %k_less, {most_depth}
  %share_more = add i64 %k, %blocks
  %share_less = sub i64 %share_more, 1
  %share = udiv i64 %share_less, %blocks
  %share_up = add i64 %share, {step_less}
  %whole_depth = and i64 %share_up, -{step}
  %depth_steps = udiv i64 %whole_depth, {step}
  %panel_bytes = mul i64 %depth_steps, {rhs_step_bytes}
  %panels = udiv i64 {rhs_bytes}, %panel_bytes
  %whole_width = mul i64 %panels, {panel}
  br label %block
block:
  %j = phi i64 [ 0, %entry ], [ %next_j, %block_done ]
  %n_left = sub i64 %n, %j
  %width = call i64 @llvm.umin.i64(i64 %n_left, i64 %whole_width)
  br label %deep
deep:
  %d = phi i64 [ 0, %block ], [ %next_d, %deep_done ]
  %k_left = sub i64 %k, %d
  %depth = call i64 @llvm.umin.i64(i64 %k_left, i64 %whole_depth)
  %depth_up = add i64 %depth, {step_less}
  %steps = udiv i64 %depth_up, {step}
  %later = icmp ne i64 %d, 0
  %add = or i1 %later, %adds_at_all
  %lhs_way = mul i64 %d, %lhs_depth
  %lhs_d = getelementptr i8, ptr %lhs, i64 %lhs_way
  %rhs_way = mul i64 %d, %rhs_depth
  %rhs_d = getelementptr i8, ptr %rhs, i64 %rhs_way
  store <32 x i16> zeroinitializer, ptr %rhs_most, align 64
  ; lines along the depth are packed one after the other, rows across it through all panels
  %rhs_span = select i1 %rhs_turn, i64 %whole_depth, i64 {step}
  br label %pack_depth
pack_depth:
  %e = phi i64 [ 0, %deep ], [ %next_e, %depth_packed ]
  %depth_left = sub i64 %depth, %e
  %span = call i64 @llvm.umin.i64(i64 %depth_left, i64 %rhs_span)
  %e_way = mul i64 %e, %rhs_depth
  %rhs_e = getelementptr i8, ptr %rhs_d, i64 %e_way
  %e_number = udiv i64 %e, {step}
  %e_place = mul i64 %e_number, {rhs_step_bytes}
  %to_e = getelementptr i8, ptr %rhs_packed, i64 %e_place
  br label %pack_rhs
pack_rhs:
  %q = phi i64 [ 0, %pack_depth ], [ %next_q, %pack_rhs ]
  %column = add i64 %j, %q
  %column_way = mul i64 %column, %rhs_line
  %rhs_q = getelementptr i8, ptr %rhs_e, i64 %column_way
  %width_left = sub i64 %width, %q
  %lines_q = call i64 @llvm.umin.i64(i64 %width_left, i64 {panel})
  %number_q = udiv i64 %q, {panel}
  %place_q = mul i64 %number_q, %panel_bytes
  %to_q = getelementptr i8, ptr %to_e, i64 %place_q
  call void @{pack_rhs}(ptr %to_q, ptr %rhs_q, i64 %rhs_line, i64 %rhs_depth, i64 %lines_q, i64 %span, i1 %rhs_turn,
    float %scale, ptr %rhs_most)
  %next_q = add i64 %q, {panel}
  %more_q = icmp ult i64 %next_q, %width
  br i1 %more_q, label %pack_rhs, label %depth_packed
depth_packed:
  %next_e = add i64 %e, %rhs_span
  %more_e = icmp ult i64 %next_e, %depth
  br i1 %more_e, label %pack_depth, label %some_rows
some_rows:
  %i = phi i64 [ 0, %depth_packed ], [ %next_i, %rows_done ]
  %row_way = mul i64 %i, %lhs_line
  %lhs_i = getelementptr i8, ptr %lhs_d, i64 %row_way
  %m_left = sub i64 %m, %i
  %rows = call i64 @llvm.umin.i64(i64 %m_left, i64 {panel})
  store <32 x i16> zeroinitializer, ptr %lhs_most, align 64
  call void @{pack_lhs}(ptr %lhs_packed, ptr %lhs_i, i64 %lhs_line, i64 %lhs_depth, i64 %rows, i64 %depth, i1 %lhs_turn,
    float %scale, ptr %lhs_most)
  %out_way = mul i64 %i, %out_row
  %out_i = getelementptr i8, ptr %out, i64 %out_way
  %two_rows = icmp ugt i64 %rows, {lines}
{check}
otherwise:
{otherwise}
columns:
  %c = phi i64 [ 0, %some_rows ], [ %next_c, %multiplied ]
  %to_before = phi ptr [ %out_i, %some_rows ], [ %to, %multiplied ]
  %columns_before = phi i64 [ 0, %some_rows ], [ %columns_c, %multiplied ]
  %rows_before = phi i64 [ 0, %some_rows ], [ %rows, %multiplied ]
  %number_c = udiv i64 %c, {panel}
  %place_c = mul i64 %number_c, %panel_bytes
  %rhs_c = getelementptr i8, ptr %rhs_packed, i64 %place_c
  %column_c = add i64 %j, %c
  %out_column = mul i64 %column_c, {result_size}
  %to = getelementptr i8, ptr %out_i, i64 %out_column
  %columns_left = sub i64 %width, %c
  %columns_c = call i64 @llvm.umin.i64(i64 %columns_left, i64 {panel})
  %two_columns = icmp ugt i64 %columns_c, {lines}
  br i1 %two_rows, label %rows2, label %rows1
rows2:
  br i1 %two_columns, label %by22, label %by21
rows1:
  br i1 %two_columns, label %by12, label %by11
by22:
  call void @multiply22(ptr %lhs_packed, ptr %rhs_c, i64 %steps, {before})
  br label %multiplied
by21:
  call void @multiply21(ptr %lhs_packed, ptr %rhs_c, i64 %steps, {before})
  br label %multiplied
by12:
  call void @multiply12(ptr %lhs_packed, ptr %rhs_c, i64 %steps, {before})
  br label %multiplied
by11:
  call void @multiply11(ptr %lhs_packed, ptr %rhs_c, i64 %steps, {before})
  br label %multiplied
multiplied:
  call void @store(ptr %total)
  %next_c = add i64 %c, {panel}
  %more_c = icmp ult i64 %next_c, %width
  br i1 %more_c, label %columns, label %finish_last
finish_last:
  call void @finish(ptr %total, ptr %to, i64 %out_row, i64 %rows, i64 %columns_c, i1 %add, float %unscale)
  br label %rows_done
rows_done:
  %next_i = add i64 %i, {panel}
  %more_i = icmp ult i64 %next_i, %m
  br i1 %more_i, label %some_rows, label %deep_done
deep_done:
  %next_d = add i64 %d, %whole_depth
  %more_d = icmp ult i64 %next_d, %k
  br i1 %more_d, label %deep, label %block_done
block_done:
  %next_j = add i64 %j, %whole_width
  %more_j = icmp ult i64 %next_j, %n
  br i1 %more_j, label %block, label %end
end:
  call void @llvm.x86.tilerelease()
  ret i1 true
refused:
  call void @llvm.x86.tilerelease()
  ret i1 false
}}
"""
