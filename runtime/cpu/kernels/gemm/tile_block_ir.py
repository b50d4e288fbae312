"""Native code of matrix products on the tile unit: operands are packed in blocks that fit in cache, panel by panel.

Vector instructions for the same types use the same panels.

One operand stays packed (resident) while the other is packed piece by piece (passing). For each block of columns of rhs
(or of rows of lhs, if lhs is resident), for each block of the depth: pack that part; pack 32 rows of lhs at a time (or
some columns of rhs), multiply each packed panel with each, and store or accumulate 32 by 32 elements of the result,
interleaved with the instructions that multiply the next ones. Packed operands are on the stack, about 1 MiB, so that a
step allocates nothing.

The unit flushes denormal numbers to zero, so f32 parts and their products are scaled: packing multiplies by 2^24, and
results by 2^-48. Then parts of the smallest denormal are normal, and lost products are 2^-24 of f32's smallest number.
Numbers that are too large for that, infinite or nan are found while packing, and computed otherwise.
"""

from __future__ import annotations

from runtime.codegen.ir.record_loads import RECORD_LOADS
from runtime.cpu.kernels.gemm.tile_multiply_ir import multiply_ir
from runtime.cpu.kernels.gemm.tile_pack_ir import pack_function, pack_ir
from runtime.cpu.kernels.gemm.tile_record import record_ir
from runtime.cpu.kernels.gemm.tile_store_ir import finish_ir
from runtime.cpu.kernels.gemm.tile_types import (
    BLOCK_BYTES,
    CONFIG_IR,
    LINES,
    PANEL,
    TileTypes,
    most_depth,
)
from runtime.cpu.kernels.gemm.tile_unit import Unit
from runtime.cpu.kernels.gemm.vector_multiply_ir import multiply_ir as multiply_by_vectors_ir

#: Bytes of packed lines that are resident, and of columns of rhs that pass: both fit in an L2 cache of 2 MiB with the
#: other data.
_RESIDENT_BYTES, _PASSING_BYTES = 768 << 10, 384 << 10
#: 2^24 and 2^-48 as LLVM writes floats.
SCALE, UNSCALE, ONE = "0x4170000000000000", "0x3CF0000000000000", "0x3FF0000000000000"
#: Largest sum of two stored f32 exponents and the bits of a depth: beyond it sums might not be finite.
_MOST_EXPONENT = 376


def _has_one_packing(types: TileTypes) -> bool:
    """Return whether both operands are packed by one function, so that either may be resident."""
    return pack_function(types.lhs) == pack_function(types.rhs)


def _passing_bytes(types: TileTypes) -> int:
    """Return the bytes for packed lines of the passing operand: at least a panel of the greatest depth."""
    panel = most_depth(types) // types.step_depth * types.step_bytes
    return max(panel, _PASSING_BYTES) if _has_one_packing(types) else panel


def product_ir(types: TileTypes, *, instead: bool, unit: Unit = Unit.TILES) -> str:
    """Return ``@product(record, scale, unscale, checked)``, which returns whether the entire product was computed.

    If ``checked`` finds numbers beyond the unit's range, ``@instead`` (tile_record.py) computes that block, if it is
    defined; otherwise the function returns false.
    """
    step, by_tiles = types.step_depth, unit is Unit.TILES
    main = _PRODUCT.format(
        setup=record_ir(),
        cached_bytes=_RESIDENT_BYTES,
        passing_bytes=_passing_bytes(types),
        choice=_CHOICE if _has_one_packing(types) else _RHS_STAYS,
        block=BLOCK_BYTES,
        lhs_item=types.lhs.byte_size,
        rhs_item=types.rhs.byte_size,
        pack_lhs=pack_function(types.lhs),
        pack_rhs=pack_function(types.rhs),
        result_size=types.result.byte_size,
        most_depth=most_depth(types),
        step=step,
        step_less=step - 1,
        rhs_step_bytes=types.rhs_step_bytes,
        panel=PANEL,
        lines=LINES,
        begin="  call void @llvm.x86.ldtilecfg(ptr @tile_config)" if by_tiles else "",
        end="  call void @llvm.x86.tilerelease()" if by_tiles else "",
        multiply=_BY_TILES.format(lines=LINES, before=_BEFORE) if by_tiles else _BY_VECTORS,
        finish_last=_FINISH if by_tiles else "",
        check=_CHECK.format(most=_MOST_EXPONENT) if types.is_float else "  br label %sweep",
        otherwise=_INSTEAD if instead else "  br label %refused",
    )
    parts = (
        RECORD_LOADS,
        CONFIG_IR,
        pack_ir(types),
        multiply_ir(types) if by_tiles else multiply_by_vectors_ir(types),
        finish_ir(types),
        _LARGEST,
        main,
    )
    return "".join(parts)


_LARGEST = f"""

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
  %passing_largest = call i64 @largest(ptr %passing_most)
  %cached_largest = call i64 @largest(ptr %cached_most)
  %zeros = call i64 @llvm.ctlz.i64(i64 %depth, i1 true)
  %depth_bits = sub i64 64, %zeros
  %exponents = add i64 %passing_largest, %cached_largest
  %magnitude = add i64 %exponents, %depth_bits
  %passing_finite = icmp ult i64 %passing_largest, 255
  %cached_finite = icmp ult i64 %cached_largest, 255
  %small = icmp ult i64 %magnitude, {most}
  %finite = and i1 %passing_finite, %cached_finite
  %fits = and i1 %finite, %small
  %unchecked = xor i1 %checked, true
  %fine = or i1 %fits, %unchecked
  br i1 %fine, label %sweep, label %otherwise
"""

_INSTEAD = """
  %row = select i1 %keeps_lhs, i64 %a, i64 %b
  %column = select i1 %keeps_lhs, i64 %b, i64 %a
  %instead_rows = select i1 %keeps_lhs, i64 %width, i64 %lines_b
  %instead_columns = select i1 %keeps_lhs, i64 %lines_b, i64 %width
  call void @instead(ptr %record, i64 %row, i64 %column, i64 %d, i64 %instead_rows, i64 %instead_columns, i64 %depth,
    i1 %add)
  br label %lines_done
"""

#: Choice of the resident operand by the total cost of packing: the passing one is packed for every block of lines. A
#: line that is transposed counts twice (measured).
_CHOICE = """
  %lhs_weight = select i1 %lhs_turn, i64 2, i64 1
  %rhs_weight = select i1 %rhs_turn, i64 2, i64 1
  %lhs_once = mul i64 %m, %lhs_weight
  %rhs_once = mul i64 %n, %rhs_weight
  %width_less = sub i64 %full_width, 1
  %m_more = add i64 %m, %width_less
  %m_blocks = udiv i64 %m_more, %full_width
  %n_more = add i64 %n, %width_less
  %n_blocks = udiv i64 %n_more, %full_width
  %lhs_often = mul i64 %lhs_once, %n_blocks
  %rhs_often = mul i64 %rhs_once, %m_blocks
  %if_lhs_stays = add i64 %lhs_once, %rhs_often
  %if_rhs_stays = add i64 %rhs_once, %lhs_often
  %keeps_lhs = icmp ult i64 %if_lhs_stays, %if_rhs_stays
"""
_RHS_STAYS = "  %keeps_lhs = or i1 false, false"

#: Arguments for the block of the result that is finished while the unit computes the next one.
_BEFORE = """ptr %total, ptr %to_before, i64 %out_row,
    i64 %rows_before, i64 %columns_before, i1 %add, float %unscale"""

_BY_TILES = """
  %two_rows = icmp ugt i64 %rows, {lines}
  %two_columns = icmp ugt i64 %columns, {lines}
  br i1 %two_rows, label %rows2, label %rows1
rows2:
  br i1 %two_columns, label %by22, label %by21
rows1:
  br i1 %two_columns, label %by12, label %by11
by22:
  call void @multiply22(ptr %lhs_panel, ptr %rhs_panel, i64 %steps, {before})
  br label %multiplied
by21:
  call void @multiply21(ptr %lhs_panel, ptr %rhs_panel, i64 %steps, {before})
  br label %multiplied
by12:
  call void @multiply12(ptr %lhs_panel, ptr %rhs_panel, i64 %steps, {before})
  br label %multiplied
by11:
  call void @multiply11(ptr %lhs_panel, ptr %rhs_panel, i64 %steps, {before})
  br label %multiplied
multiplied:
  call void @store(ptr %total)"""

_FINISH = (
    "  call void @finish(ptr %total, ptr %to, i64 %out_row, i64 %rows, i64 %columns, i1 %add,\n"
    "    float %unscale)"
)

#: Vector code finishes a block at once.
_BY_VECTORS = f"""
  call void @multiply(ptr %lhs_panel, ptr %rhs_panel, i64 %steps, i64 %rows, i64 %columns, ptr %total)
{_FINISH}
  br label %multiplied
multiplied:"""

_PRODUCT = """
define internal i1 @product(ptr %record, float %scale, float %unscale, i1 %checked) noinline {{
entry:
  %cached_packed = alloca [{cached_bytes} x i8], align 4096
  %passing_packed = alloca [{passing_bytes} x i8], align 4096
  %total = alloca [{block} x i8], align 64
  %cached_most = alloca [64 x i8], align 64
  %passing_most = alloca [64 x i8], align 64
{setup}
{begin}
  %adds_at_all = icmp ne i64 %adds, 0
  %lhs_turn = icmp ne i64 %lhs_depth, {lhs_item}
  %rhs_turn = icmp eq i64 %rhs_depth, {rhs_item}
  ; blocks of the depth of about the same size, and as many lines as then have room
  %k_more = add i64 %k, {most_depth}
  %k_less = sub i64 %k_more, 1
  %blocks = udiv i64 %k_less, {most_depth}
  %share_more = add i64 %k, %blocks
  %share_less = sub i64 %share_more, 1
  %share = udiv i64 %share_less, %blocks
  %share_up = add i64 %share, {step_less}
  %full_depth = and i64 %share_up, -{step}
  %depth_steps = udiv i64 %full_depth, {step}
  %panel_bytes = mul i64 %depth_steps, {rhs_step_bytes}
  %panels = udiv i64 {cached_bytes}, %panel_bytes
  %full_width = mul i64 %panels, {panel}
  %passing_panels = udiv i64 {passing_bytes}, %panel_bytes
  %most_passing = mul i64 %passing_panels, {panel}
{choice}
  %cached = select i1 %keeps_lhs, ptr %lhs, ptr %rhs
  %cached_lines = select i1 %keeps_lhs, i64 %m, i64 %n
  %cached_line = select i1 %keeps_lhs, i64 %lhs_line, i64 %rhs_line
  %cached_depth = select i1 %keeps_lhs, i64 %lhs_depth, i64 %rhs_depth
  %cached_turn = select i1 %keeps_lhs, i1 %lhs_turn, i1 %rhs_turn
  %cached_out = select i1 %keeps_lhs, i64 %out_row, i64 {result_size}
  %passing = select i1 %keeps_lhs, ptr %rhs, ptr %lhs
  %passing_lines = select i1 %keeps_lhs, i64 %n, i64 %m
  %passing_line = select i1 %keeps_lhs, i64 %rhs_line, i64 %lhs_line
  %passing_depth = select i1 %keeps_lhs, i64 %rhs_depth, i64 %lhs_depth
  %passing_turn = select i1 %keeps_lhs, i1 %rhs_turn, i1 %lhs_turn
  %passing_out = select i1 %keeps_lhs, i64 {result_size}, i64 %out_row
  ; 32 rows of lhs go along all columns that stay; of rhs so many columns at once that rows of the result are not short
  %passing_width = select i1 %keeps_lhs, i64 %most_passing, i64 {panel}
  %lhs_packed = select i1 %keeps_lhs, ptr %cached_packed, ptr %passing_packed
  %rhs_packed = select i1 %keeps_lhs, ptr %passing_packed, ptr %cached_packed
  br label %block
block:
  %a = phi i64 [ 0, %entry ], [ %next_a, %block_done ]
  %cached_left = sub i64 %cached_lines, %a
  %width = call i64 @llvm.umin.i64(i64 %cached_left, i64 %full_width)
  %a_way = mul i64 %a, %cached_line
  %cached_a = getelementptr i8, ptr %cached, i64 %a_way
  %out_a_way = mul i64 %a, %cached_out
  %out_a = getelementptr i8, ptr %out, i64 %out_a_way
  br label %deep
deep:
  %d = phi i64 [ 0, %block ], [ %next_d, %deep_done ]
  %k_left = sub i64 %k, %d
  %depth = call i64 @llvm.umin.i64(i64 %k_left, i64 %full_depth)
  %depth_up = add i64 %depth, {step_less}
  %steps = udiv i64 %depth_up, {step}
  %later = icmp ne i64 %d, 0
  %add = or i1 %later, %adds_at_all
  %cached_way = mul i64 %d, %cached_depth
  %cached_d = getelementptr i8, ptr %cached_a, i64 %cached_way
  %passing_way = mul i64 %d, %passing_depth
  %passing_d = getelementptr i8, ptr %passing, i64 %passing_way
  call void @{pack_rhs}_lines(ptr %cached_packed, ptr %cached_d, i64 %cached_line, i64 %cached_depth, i64 %width,
    i64 %depth, i1 %cached_turn, i64 %panel_bytes, float %scale, ptr %cached_most)
  br label %some_lines
some_lines:
  %b = phi i64 [ 0, %deep ], [ %next_b, %lines_done ]
  %b_way = mul i64 %b, %passing_line
  %passing_b = getelementptr i8, ptr %passing_d, i64 %b_way
  %passing_left = sub i64 %passing_lines, %b
  %lines_b = call i64 @llvm.umin.i64(i64 %passing_left, i64 %passing_width)
  call void @{pack_lhs}_lines(ptr %passing_packed, ptr %passing_b, i64 %passing_line, i64 %passing_depth,
    i64 %lines_b, i64 %depth, i1 %passing_turn, i64 %panel_bytes, float %scale, ptr %passing_most)
  %out_b_way = mul i64 %b, %passing_out
  %out_b = getelementptr i8, ptr %out_a, i64 %out_b_way
{check}
otherwise:
{otherwise}
sweep:
  %all_rows = select i1 %keeps_lhs, i64 %width, i64 %lines_b
  %all_columns = select i1 %keeps_lhs, i64 %lines_b, i64 %width
  br label %row_panel
row_panel:
  %r = phi i64 [ 0, %sweep ], [ %next_r, %row_done ]
  %to_above = phi ptr [ %out_b, %sweep ], [ %to, %row_done ]
  %columns_above = phi i64 [ 0, %sweep ], [ %columns, %row_done ]
  %rows_above = phi i64 [ 0, %sweep ], [ %rows, %row_done ]
  %number_r = udiv i64 %r, {panel}
  %panel_offset_r = mul i64 %number_r, %panel_bytes
  %lhs_panel = getelementptr i8, ptr %lhs_packed, i64 %panel_offset_r
  %rows_left = sub i64 %all_rows, %r
  %rows = call i64 @llvm.umin.i64(i64 %rows_left, i64 {panel})
  %out_r_way = mul i64 %r, %out_row
  %out_r = getelementptr i8, ptr %out_b, i64 %out_r_way
  br label %column_panel
column_panel:
  %c = phi i64 [ 0, %row_panel ], [ %next_c, %multiplied ]
  %to_before = phi ptr [ %to_above, %row_panel ], [ %to, %multiplied ]
  %columns_before = phi i64 [ %columns_above, %row_panel ], [ %columns, %multiplied ]
  %rows_before = phi i64 [ %rows_above, %row_panel ], [ %rows, %multiplied ]
  %number_c = udiv i64 %c, {panel}
  %panel_offset_c = mul i64 %number_c, %panel_bytes
  %rhs_panel = getelementptr i8, ptr %rhs_packed, i64 %panel_offset_c
  %columns_left = sub i64 %all_columns, %c
  %columns = call i64 @llvm.umin.i64(i64 %columns_left, i64 {panel})
  %out_c_way = mul i64 %c, {result_size}
  %to = getelementptr i8, ptr %out_r, i64 %out_c_way
{multiply}
  %next_c = add i64 %c, {panel}
  %more_c = icmp ult i64 %next_c, %all_columns
  br i1 %more_c, label %column_panel, label %row_done
row_done:
  %next_r = add i64 %r, {panel}
  %more_r = icmp ult i64 %next_r, %all_rows
  br i1 %more_r, label %row_panel, label %finish_last
finish_last:
{finish_last}
  br label %lines_done
lines_done:
  %next_b = add i64 %b, %passing_width
  %more_b = icmp ult i64 %next_b, %passing_lines
  br i1 %more_b, label %some_lines, label %deep_done
deep_done:
  %next_d = add i64 %d, %full_depth
  %more_d = icmp ult i64 %next_d, %k
  br i1 %more_d, label %deep, label %block_done
block_done:
  %next_a = add i64 %a, %full_width
  %more_a = icmp ult i64 %next_a, %cached_lines
  br i1 %more_a, label %block, label %end
end:
{end}
  ret i1 true
refused:
{end}
  ret i1 false
}}
"""
