"""LLVM IR that unscales a block of a convolution's sums and stores its rows at offsets from a table.

A block's sums are in ``%total``, four tiles, when its products are done; they are stored between the next block's
steps, which overlaps with the unit's work. ``%pending`` is the record of the block that is not stored yet.
"""

from __future__ import annotations

from runtime.codegen.ir.record_loads import again, read
from runtime.codegen.record import Address, Record, Word, record, word_count, word_index
from runtime.cpu.kernels.gemm.tile_block_ir import UNSCALE
from runtime.cpu.kernels.gemm.tile_types import BLOCK_BYTES, LINES, TILE_BYTES, repeated


@record
class PendingRecord(Record):
    """Block whose sums are in ``%total``: its address in the result, and offsets of each row (-1: none).

    ``lane_offsets``: of columns within a row; dense: these are contiguous. rows, columns: their numbers; adds: sums are
    accumulated to the result.
    """

    out: Address
    offsets: Address
    lane_offsets: Address
    dense: Word
    rows: Word
    columns: Word
    adds: Word


PENDING_BYTES = 8 * word_count(PendingRecord)


def begin_ir(lane_offsets: str, dense: str) -> str:
    """Return lines that define ``%total`` and an empty ``%pending``; ``dense``: an i64."""
    return f"""  %total = alloca [{BLOCK_BYTES} x i8], align 64
  %pending = alloca [{PENDING_BYTES} x i8], align 64
  call void @llvm.memset.p0.i64(ptr %pending, i8 0, i64 {PENDING_BYTES}, i1 false)
  call void @pend(ptr %pending, i64 {word_index(PendingRecord, "dense")}, i64 {dense})
  %lane_offsets_word = ptrtoint ptr {lane_offsets} to i64
  call void @pend(ptr %pending, i64 {word_index(PendingRecord, "lane_offsets")}, i64 %lane_offsets_word)
"""


def read_pending(*names: str) -> str:
    """Return lines that load fields of ``%pending``."""
    return read(PendingRecord, *names).replace("%record", "%pending")


def pend(**values: str) -> str:
    """Return lines that set fields of ``%pending``."""
    return "\n".join(
        f"  call void @pend(ptr %pending, i64 {word_index(PendingRecord, name)}, i64 {value})"
        for name, value in values.items()
    )


_PEND = """
define internal void @pend(ptr %pending, i64 %number, i64 %value) alwaysinline {
  %word = getelementptr i64, ptr %pending, i64 %number
  store i64 %value, ptr %word
  ret void
}
"""


def _each_row(count: str, work: str) -> str:
    """Return blocks that do ``work`` for each row %r with an offset, at %to0; it must end in block %row_done."""
    return f"""loop:
  %r = phi i64 [ 0, %entry ], [ %next_r, %row_done ]
  %table_entry = getelementptr i64, ptr %offsets, i64 %r
  %offset = load i64, ptr %table_entry
  %nowhere = icmp slt i64 %offset, 0
  br i1 %nowhere, label %row_done, label %row
row:
  %to0 = getelementptr i8, ptr %out, i64 %offset
{work}row_done:
{again("r", count, "loop", "end")}
end:
  ret void"""


def _apart(half: int) -> str:
    """Return lines that compute %apart, the addresses of 16 columns of a row."""
    return f"""  %lanes{half} = getelementptr <16 x i64>, ptr %lane_offsets, i64 {half}
  %ways{half} = load <16 x i64>, ptr %lanes{half}, align 8
  %apart{half} = getelementptr i8, ptr %to0, <16 x i64> %ways{half}
"""


def _cleared(half: int) -> str:
    return f"""{_apart(half)}  call void @llvm.masked.scatter.v16f32.v16p0(
    <16 x float> zeroinitializer, <16 x ptr> %apart{half}, i32 4, <16 x i1> %mask{half})
"""


def _scattered(half: int) -> str:
    """Return lines that scatter the sums of 16 columns of a row."""
    return f"""{_apart(half)}  %there{half} = call <16 x float> @llvm.masked.gather.v16f32.v16p0(
    <16 x ptr> %apart{half}, i32 4, <16 x i1> %old{half}, <16 x float> zeroinitializer)
  %summed{half} = fadd <16 x float> %scaled{half}, %there{half}
  call void @llvm.masked.scatter.v16f32.v16p0(
    <16 x float> %summed{half}, <16 x ptr> %apart{half}, i32 4, <16 x i1> %mask{half})
"""


_FINISH_ROW = f"""  %block_row = add i64 %r, %first
  %tile_row = lshr i64 %block_row, 4
  %tile_way = mul i64 %tile_row, {2 * TILE_BYTES}
  %tiles = getelementptr i8, ptr %total, i64 %tile_way
  %within = and i64 %block_row, 15
  %from0 = getelementptr [64 x i8], ptr %tiles, i64 %within
  %from1 = getelementptr i8, ptr %from0, i64 {TILE_BYTES}
  %sum0 = load <16 x float>, ptr %from0, align 64
  %sum1 = load <16 x float>, ptr %from1, align 64
  %scaled0 = fmul <16 x float> %sum0, {repeated(UNSCALE, "float")}
  %scaled1 = fmul <16 x float> %sum1, {repeated(UNSCALE, "float")}
  br i1 %is_dense, label %neighbours, label %scattered
scattered:
{_scattered(0)}  br i1 %two_columns, label %scattered_right, label %row_done
scattered_right:
{_scattered(1)}  br label %row_done
neighbours:
  %to1 = getelementptr i8, ptr %to0, i64 64
  br i1 %is_adding, label %adding, label %storing
adding:
  %before0 = call <16 x float> @loaded(ptr %to0, <16 x i1> %mask0)
  %before1 = call <16 x float> @loaded(ptr %to1, <16 x i1> %mask1)
  %new0 = fadd <16 x float> %scaled0, %before0
  %new1 = fadd <16 x float> %scaled1, %before1
  br label %storing
storing:
  %stored0 = phi <16 x float> [ %scaled0, %neighbours ], [ %new0, %adding ]
  %stored1 = phi <16 x float> [ %scaled1, %neighbours ], [ %new1, %adding ]
  call void @llvm.masked.store.v16f32.p0(<16 x float> %stored0, ptr %to0, i32 4, <16 x i1> %mask0)
  call void @llvm.masked.store.v16f32.p0(<16 x float> %stored1, ptr %to1, i32 4, <16 x i1> %mask1)
  br label %row_done
"""

_CLEAR_ROW = f"""  br i1 %is_dense, label %neighbours, label %scattered
scattered:
{_cleared(0)}  br i1 %two_columns, label %scattered_right, label %row_done
scattered_right:
{_cleared(1)}  br label %row_done
neighbours:
  %to1 = getelementptr i8, ptr %to0, i64 64
  call void @llvm.masked.store.v16f32.p0(<16 x float> zeroinitializer, ptr %to0, i32 4, <16 x i1> %mask0)
  call void @llvm.masked.store.v16f32.p0(<16 x float> zeroinitializer, ptr %to1, i32 4, <16 x i1> %mask1)
  br label %row_done
"""

_FETCH_ROW = """  %to1 = getelementptr i8, ptr %to0, i64 %last
  call void @llvm.prefetch.p0(ptr %to0, i32 0, i32 2, i32 1)
  call void @llvm.prefetch.p0(ptr %to1, i32 0, i32 2, i32 1)
  br label %row_done
"""

_FINISH = f"""
; %count rows of the block in %total from row %first on
define internal void @finish_rows(ptr %total, ptr %pending, i64 %first, i64 %count) noinline {{
entry:
{read_pending("out", "offsets", "lane_offsets", "dense", "columns", "adds")}
  %offsets_first = getelementptr i64, ptr %offsets, i64 %first
  %is_dense = icmp ne i64 %dense, 0
  %is_adding = icmp ne i64 %adds, 0
  %two_columns = icmp ugt i64 %columns, {LINES}
  %mask0 = call <16 x i1> @lanes(i64 %columns)
  %right = sub i64 %columns, {LINES}
  %mask1 = call <16 x i1> @lanes(i64 %right)
  %old0 = select i1 %is_adding, <16 x i1> %mask0, <16 x i1> zeroinitializer
  %old1 = select i1 %is_adding, <16 x i1> %mask1, <16 x i1> zeroinitializer
  br label %loop
{_each_row("count", _FINISH_ROW).replace("ptr %offsets,", "ptr %offsets_first,")}
}}

; all that is still to be written
define internal void @finish(ptr %total, ptr %pending) alwaysinline {{
entry:
{read_pending("rows")}
  %any = icmp ne i64 %rows, 0
  br i1 %any, label %some, label %end
some:
  call void @finish_rows(ptr %total, ptr %pending, i64 0, i64 %rows)
{pend(rows="0")}
  br label %end
end:
  ret void
}}

; a block of no products
define internal void @clear(ptr %pending, ptr %out, ptr %offsets, i64 %rows, i64 %columns) noinline {{
entry:
{read_pending("lane_offsets", "dense")}
  %is_dense = icmp ne i64 %dense, 0
  %two_columns = icmp ugt i64 %columns, {LINES}
  %mask0 = call <16 x i1> @lanes(i64 %columns)
  %right = sub i64 %columns, {LINES}
  %mask1 = call <16 x i1> @lanes(i64 %right)
  br label %loop
{_each_row("rows", _CLEAR_ROW)}
}}

; the lines of the sums come to the second-level cache while products are made
define internal void @fetch(ptr %out, ptr %offsets, i64 %rows, i64 %columns) alwaysinline {{
entry:
  %bytes = shl i64 %columns, 2
  %last = sub i64 %bytes, 4
  br label %loop
{_each_row("rows", _FETCH_ROW)}
}}
"""

#: ``@finish_rows``, ``@finish``, ``@clear`` and ``@fetch``. After TILES.
FINISH = _PEND + _FINISH
