"""Native code of a convolution by vector registers: a few rows of the patch matrix are packed, and multiplied at once.

Rows are packed in the nearest cache, by w that was packed before, for one block of the depth after the other; later
blocks are added to the result. A record of words (``VectorWords``) says what one of the two functions does: where
channels lie without gaps in the input (``LeftForm.ROWS``), or where rows of the result do (``LeftForm.DEPTH``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from runtime.codegen.ir.record_words import WORDS, RecordLayout, again, with_lists
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import ITEM, declarations, multiply_ir
from runtime.cpu.kernels.convolution.ir.vector_offsets_ir import PLACE, UNIT, walking_ir
from runtime.cpu.kernels.convolution.ir.vector_pack_ir import columns_ir, depth_ir, rows_ir
from runtime.program.records.convolution import LeftForm, VectorForm
from spmd.literal import NDArray

FUNCTION = "spmd_convolve_vectors"
#: Words of a block of units: the first one's number, how many, depth.
BLOCK = 3


@dataclass(frozen=True, slots=True)
class VectorWords:
    """x[g, n, h.., c], w[g, window.., c, f] and out[g, n, h.., f]; bytes where they say so, else numbers.

    total: outer indices, of sizes total / (size1 * ..), size1, size2, size3; they are positions of the result (ROWS),
    or of the window with its channels (DEPTH). high: the input's spatial sizes; whole: at how many indices there a
    window that meets no padding may begin. block_outer: so many at a time; with ROWS where sums go through ``buffer``
    (else 0). run: rows without gaps (DEPTH), row_bytes apart in the result, or in the buffer (ROWS). Lists: instances
    (bytes in x, w, out), outer (the first place, then four steps of places), units (see vector_offsets_ir), blocks.
    """

    x: int
    w: int
    out: int
    left: int
    packed: int
    table: int
    met: int
    buffer: int
    spare: int
    features: int
    block_features: int
    feature_bytes: int
    channel_bytes: int
    out_feature_bytes: int
    total: int
    size1: int
    size2: int
    size3: int
    high0: int
    high1: int
    high2: int
    whole0: int
    whole1: int
    whole2: int
    block_outer: int
    buffered: int
    run: int
    row_bytes: int
    instance_count: int
    unit_count: int
    block_count: int
    instances: tuple[int, ...]
    outer: tuple[int, ...]
    units: tuple[int, ...]
    blocks: tuple[int, ...]

    def packed_at(self, address: int) -> NDArray:
        """The words as they lie in memory at ``address``."""
        numbers = [getattr(self, name) for name in _RECORD.names[: -len(_LISTS)]]
        return with_lists(numbers, [getattr(self, name) for name in _LISTS], address)


_LISTS = ("instances", "outer", "units", "blocks")
_POINTERS = ("x", "w", "out", "left", "packed", "table", "met", "buffer", "spare")
_RECORD = RecordLayout(
    tuple(field.name for field in fields(VectorWords)), frozenset({*_POINTERS, *_LISTS})
)


@cache
def vector_code(form: VectorForm, left: LeftForm) -> NativeLibrary:
    """``FUNCTION`` for f32: takes the address of packed words."""
    return host_jit().compile(vector_ir(form, left), (FUNCTION,), passes=Passes.TIDY)


def vector_ir(form: VectorForm, left: LeftForm) -> str:
    heights = form.next_heights()
    own = rows_ir if left is LeftForm.ROWS else depth_ir
    driver = _rows_driver if left is LeftForm.ROWS else _depth_driver
    numbers = ", ".join(f"i8 {height}" for height in heights)
    return "\n".join(
        [
            WORDS,
            declarations(form),
            f"@heights = internal constant [{len(heights)} x i8] [{numbers}]",
            _HEIGHT.format(last=len(heights) - 1),
            multiply_ir(form, left),
            walking_ir(_RECORD),
            columns_ir(form),
            own(form, _RECORD),
            _panels(form),
            driver(form),
        ]
    )


_HEIGHT = """
define internal i64 @height(i64 %left) alwaysinline {{
  %known = call i64 @llvm.smin.i64(i64 %left, i64 {last})
  %slot = getelementptr i8, ptr @heights, i64 %known
  %found = load i8, ptr %slot
  %height = zext i8 %found to i64
  ret i64 %height
}}
"""


def _panels(form: VectorForm) -> str:
    """``@multiply_all``: packed rows by all of packed w."""
    panel_bytes = form.columns * ITEM
    return f"""
define internal void @multiply_all(ptr %record, i64 %depth, ptr %rows, i64 %columns, i64 %height, i1 %add) noinline {{
entry:
{_RECORD.read("left", "packed")}
  %panel_bytes = mul i64 %depth, {panel_bytes}
  br label %panel
panel:
  %f = phi i64 [ 0, %entry ], [ %next_f, %panel_done ]
  %b = phi ptr [ %packed, %entry ], [ %next_b, %panel_done ]
  %left_columns = sub i64 %columns, %f
  %at = mul i64 %f, {ITEM}
  call void @multiply(
    ptr %left, ptr %b, i64 %depth, ptr %rows, i64 %at, i64 %left_columns, i64 %height, i1 %add)
  br label %panel_done
panel_done:
  %next_b = getelementptr i8, ptr %b, i64 %panel_bytes
{again("f", "columns", "panel", "end", form.columns)}
end:
  ret void
}}
"""


def _instance_and_features(then: str) -> str:
    """The loops over groups and blocks of features, up to block ``then``."""
    return f"""
  %place = alloca [{PLACE + 1} x i64]
  %rows = alloca [16 x ptr]
  %targets = alloca [16 x ptr]
  br label %instance
instance:
  %g = phi i64 [ 0, %entry ], [ %next_g, %instance_done ]
  %three = mul i64 %g, 3
  %own = getelementptr i64, ptr %instances, i64 %three
  %x_way = call i64 @word(ptr %own, i64 0)
  %w_way = call i64 @word(ptr %own, i64 1)
  %out_way = call i64 @word(ptr %own, i64 2)
  %x_g = getelementptr i8, ptr %x, i64 %x_way
  %w_g = getelementptr i8, ptr %w, i64 %w_way
  %out_g = getelementptr i8, ptr %out, i64 %out_way
  br label %feature
feature:
  %f = phi i64 [ 0, %instance ], [ %next_f, %feature_done ]
  %f_left = sub i64 %features, %f
  %columns = call i64 @llvm.smin.i64(i64 %f_left, i64 %block_features)
  %w_f_way = mul i64 %f, %feature_bytes
  %w_f = getelementptr i8, ptr %w_g, i64 %w_f_way
  %out_f_way = mul i64 %f, %out_feature_bytes
  %out_f = getelementptr i8, ptr %out_g, i64 %out_f_way
  br label %{then}
"""


_END = f"""
feature_done:
{again("f", "features", "feature", "instance_done", "%block_features")}
instance_done:
{again("g", "instance_count", "instance", "end")}
end:
  ret void
}}
"""

_COMMON = ("x", "w", "out", "features", "block_features", "feature_bytes", "out_feature_bytes")


def _rows_driver(form: VectorForm) -> str:
    names = (*_COMMON, "total", "block_outer", "buffered", "buffer", "row_bytes", "spare")
    lists = ("instance_count", "instances", "units", "blocks", "block_count")
    return f"""
; a row of the result whose features lie %step bytes apart
define internal void @spread(ptr %rows, ptr %from_rows, i64 %count, i64 %columns, i64 %step) noinline {{
entry:
  br label %column
column:
  %f = phi i64 [ 0, %entry ], [ %next_f, %column_done ]
  %way = mul i64 %f, %step
  br label %row
row:
  %r = phi i64 [ 0, %column ], [ %next_r, %row ]
  %to_slot = getelementptr ptr, ptr %rows, i64 %r
  %to_row = load ptr, ptr %to_slot
  %to = getelementptr i8, ptr %to_row, i64 %way
  %from_slot = getelementptr ptr, ptr %from_rows, i64 %r
  %from_row = load ptr, ptr %from_slot
  %from = getelementptr float, ptr %from_row, i64 %f
  %value = load float, ptr %from
  store float %value, ptr %to
{again("r", "count", "row", "column_done")}
column_done:
{again("f", "columns", "column", "end")}
end:
  ret void
}}

define void @{FUNCTION}(ptr %record) {{
entry:
{_RECORD.read(*names, *lists)}
  %is_buffered = icmp ne i64 %buffered, 0
  {_instance_and_features("part")}
part:
  %p = phi i64 [ 0, %feature ], [ %next_p, %part_done ]
  %p_left = sub i64 %total, %p
  %p_count = call i64 @llvm.smin.i64(i64 %p_left, i64 %block_outer)
  br label %block
block:
  %b = phi i64 [ 0, %part ], [ %next_b, %block_done ]
  %b_number = mul i64 %b, {BLOCK}
  %b_words = getelementptr i64, ptr %blocks, i64 %b_number
  %first_unit = call i64 @word(ptr %b_words, i64 0)
  %unit_count = call i64 @word(ptr %b_words, i64 1)
  %depth = call i64 @word(ptr %b_words, i64 2)
  %first_word = mul i64 %first_unit, {UNIT}
  %own_units = getelementptr i64, ptr %units, i64 %first_word
  %add = icmp ugt i64 %b, 0
  %b_after = add i64 %b, 1
  %is_last = icmp eq i64 %b_after, %block_count
  %spreads = and i1 %is_last, %is_buffered
  call void @pack_w(ptr %record, ptr %w_f, ptr %own_units, i64 %unit_count, i64 %columns)
  call void @seek(ptr %record, i64 %p, ptr %place)
  br label %tile
tile:
  %r = phi i64 [ 0, %block ], [ %next_r, %tile_done ]
  %left = sub i64 %p_count, %r
  %height = call i64 @height(i64 %left)
  %count = call i64 @llvm.smin.i64(i64 %left, i64 %height)
  %first = add i64 %p, %r
  call void @pack_rows(ptr %record, ptr %x_g, ptr %out_f, i64 %first, i64 %count, ptr %place,
    ptr %own_units, i64 %unit_count, ptr %rows)
  br label %target
target:
  %t = phi i64 [ 0, %tile ], [ %next_t, %target ]
  %t_row = add i64 %r, %t
  %t_way = mul i64 %t_row, %row_bytes
  %t_buffer = getelementptr i8, ptr %buffer, i64 %t_way
  %t_is_row = icmp ult i64 %t, %count
  %row_slot = getelementptr ptr, ptr %rows, i64 %t
  %row_known = load ptr, ptr %row_slot
  %t_out = select i1 %t_is_row, ptr %row_known, ptr %spare
  %t_to = select i1 %is_buffered, ptr %t_buffer, ptr %t_out
  %target_slot = getelementptr ptr, ptr %targets, i64 %t
  store ptr %t_to, ptr %target_slot
{again("t", "height", "target", "product")}
product:
  call void @multiply_all(ptr %record, i64 %depth, ptr %targets, i64 %columns, i64 %height, i1 %add)
  br i1 %spreads, label %spreading, label %tile_done
spreading:
  call void @spread(ptr %rows, ptr %targets, i64 %count, i64 %columns, i64 %out_feature_bytes)
  br label %tile_done
tile_done:
{again("r", "p_count", "tile", "block_done", "%height")}
block_done:
{again("b", "block_count", "block", "part_done")}
part_done:
{again("p", "total", "part", "feature_done", "%block_outer")}
{_END}
"""


def _depth_driver(form: VectorForm) -> str:
    names = (*_COMMON, "total", "block_outer", "run", "row_bytes", "spare")
    lists = ("instance_count", "instances", "unit_count", "units")
    return f"""
define void @{FUNCTION}(ptr %record) {{
entry:
{_RECORD.read(*names, *lists)}
  {_instance_and_features("block")}
block:
  %k = phi i64 [ 0, %feature ], [ %next_k, %block_done ]
  %k_left = sub i64 %total, %k
  %depth = call i64 @llvm.smin.i64(i64 %k_left, i64 %block_outer)
  %add = icmp ugt i64 %k, 0
  call void @walk(ptr %record, i64 %k, i64 %depth, ptr %place)
  call void @pack_w(ptr %record, ptr %w_f, i64 %depth, i64 %columns)
  br label %unit
unit:
  %u = phi i64 [ 0, %block ], [ %next_u, %unit_done ]
  %u_number = mul i64 %u, {UNIT}
  %unit_words = getelementptr i64, ptr %units, i64 %u_number
  %u_way = call i64 @word(ptr %unit_words, i64 4)
  %out_u = getelementptr i8, ptr %out_f, i64 %u_way
  call void @meet(ptr %record, ptr %x_g, ptr %unit_words, i64 %depth)
  br label %tile
tile:
  %r = phi i64 [ 0, %unit ], [ %next_r, %tile_done ]
  %left = sub i64 %run, %r
  %height = call i64 @height(i64 %left)
  %count = call i64 @llvm.smin.i64(i64 %left, i64 %height)
  call void @pack_left(ptr %record, i64 %depth, i64 %r, i64 %count)
  br label %target
target:
  %t = phi i64 [ 0, %tile ], [ %next_t, %target ]
  %t_row = add i64 %r, %t
  %t_way = mul i64 %t_row, %row_bytes
  %t_out = getelementptr i8, ptr %out_u, i64 %t_way
  %t_is_row = icmp ult i64 %t, %count
  %t_to = select i1 %t_is_row, ptr %t_out, ptr %spare
  %target_slot = getelementptr ptr, ptr %targets, i64 %t
  store ptr %t_to, ptr %target_slot
{again("t", "height", "target", "product")}
product:
  call void @multiply_all(ptr %record, i64 %depth, ptr %targets, i64 %columns, i64 %height, i1 %add)
  br label %tile_done
tile_done:
{again("r", "run", "tile", "unit_done", "%height")}
unit_done:
{again("u", "unit_count", "unit", "block_done")}
block_done:
{again("k", "total", "block", "feature_done", "%block_outer")}
{_END}
"""
