"""Native code of a convolution as matrix products of panels: pack a panel of the patch matrix, multiply, go on.

One function serves all convolutions of an element type; what it does is said by a record of words
(``ConvolutionWords``). A patch matrix has an element for every (output position, window element): which element of the
input that is, follows from a *padded coordinate* per spatial dimension, the sum of a part from the output position and
one from the window element. A table per dimension gives the bytes from the input's start to that coordinate, or -1 in
padding and in the holes of base dilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.record_words import WORDS, digits
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.libraries.blas import BlasFunction
from spmd.shape import PrimitiveType

#: Spatial dimensions that the code counts in; fewer leave the first ones at size 1.
SPATIAL = 3
FUNCTION = "spmd_convolve"
ROW_MAJOR, COLUMN_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 102, 111, 112


@dataclass(frozen=True, slots=True)
class ConvolutionWords:
    """The record of one convolution; the panel is [outer, inner], and a run is its innermost dimension.

    A *place* is (bytes in the input, padded coordinate 0, 1, 2). instances: products of their own (groups, parts of
    the batch): (place of x, bytes in w, bytes in out). outer: (size, step of a place) of four dimensions, the slowest
    first. runs: the place of each run. Strides are in bytes, leading dimensions in elements.
    """

    x: int
    w: int
    out: int
    panel: int
    inner_is_depth: bool
    columns: int
    order: int
    transpose_panel: int
    transpose_w: int
    leading_w: int
    leading_out: int
    depth_stride_w: int
    row_stride_out: int
    outer: tuple[tuple[int, int, int, int, int], ...]
    outer_per_block: int
    runs: tuple[tuple[int, int, int, int], ...]
    run_length: int
    runs_per_block: int
    instances: tuple[tuple[int, int, int, int, int, int], ...]
    tables: tuple[tuple[int, ...], ...]

    def packed(self, address: int) -> list[int]:
        """The words as they lie in memory at ``address``: what the code reads, then the lists it points to."""
        assert len(self.outer) == SPATIAL + 1
        assert len(self.tables) == SPATIAL
        total = 1
        for size, *_ in self.outer:
            total *= size
        lists = [
            [word for instance in self.instances for word in instance],
            [word for run in self.runs for word in run],
            *map(list, self.tables),
        ]
        words = [
            *(self.x, self.w, self.out, self.panel, self.inner_is_depth, self.columns),
            *(self.order, self.transpose_panel, self.transpose_w, self.leading_w, self.leading_out),
            *(self.depth_stride_w, self.row_stride_out, total, self.outer_per_block),
            *(len(self.runs), self.run_length, self.runs_per_block, len(self.instances)),
            *(word for dimension in self.outer for word in dimension),
        ]
        position = len(words) + len(lists)
        for part in lists:
            words.append(address + 8 * position)
            position += len(part)
        return [int(word) for word in (*words, *(word for part in lists for word in part))]


@cache
def convolution_code(kind: PrimitiveType, gemm: BlasFunction) -> NativeLibrary:
    """``FUNCTION`` for f32 or f64: takes the address of packed words."""
    ir = convolution_ir(kind, gemm.index_bits)
    return host_jit().compile(ir, (FUNCTION,), {"gemm": gemm.address}, passes=Passes.TIDY)


def convolution_ir(kind: PrimitiveType, index_bits: int) -> str:
    index = f"i{index_bits}"
    narrow = "trunc i64 {} to i32" if index_bits == 32 else "add i64 {}, 0"
    sizes = ("m", "n", "k", "lda", "ldb", "ldc")
    return WORDS + _IR.format(
        name=FUNCTION,
        t={PrimitiveType.F32: "float", PrimitiveType.F64: "double"}[kind],
        size=kind.byte_size,
        index=index,
        digits=digits("d", "%r", ["", "%size1", "%size2", "%size3"]),
        arguments="\n".join(f"  %{s}_arg = {narrow.format(f'%{s}')}" for s in sizes),
    )


# Words by number: see ConvolutionWords.packed.
_IR = """
declare void @gemm(i32, i32, i32, {index}, {index}, {index}, {t}, ptr, {index}, ptr, {index}, {t}, ptr, {index})

define internal void @copy_run(ptr noalias %to, ptr noalias %from, i64 %count) alwaysinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %source = getelementptr {t}, ptr %from, i64 %i
  %target = getelementptr {t}, ptr %to, i64 %i
  %value = load {t}, ptr %source
  store {t} %value, ptr %target
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}

define internal void @clear_run(ptr %to, i64 %count) alwaysinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %target = getelementptr {t}, ptr %to, i64 %i
  store {t} 0.0, ptr %target
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}

; place[part] + digit * step of the outer dimension whose words begin at %dimension
define internal i64 @stepped(ptr %record, i64 %start, i64 %digit, i64 %dimension, i64 %part) alwaysinline {{
  %number = add i64 %dimension, %part
  %step = call i64 @word(ptr %record, i64 %number)
  %way = mul i64 %digit, %step
  %end = add i64 %start, %way
  ret i64 %end
}}

define internal i64 @outer_part(
    ptr %record, ptr %instance, i64 %d0, i64 %d1, i64 %d2, i64 %d3, i64 %part) alwaysinline {{
  %start = call i64 @word(ptr %instance, i64 %part)
  %behind = add i64 %part, 1
  %p0 = call i64 @stepped(ptr %record, i64 %start, i64 %d0, i64 19, i64 %behind)
  %p1 = call i64 @stepped(ptr %record, i64 %p0, i64 %d1, i64 24, i64 %behind)
  %p2 = call i64 @stepped(ptr %record, i64 %p1, i64 %d2, i64 29, i64 %behind)
  %p3 = call i64 @stepped(ptr %record, i64 %p2, i64 %d3, i64 34, i64 %behind)
  ret i64 %p3
}}

; where padded coordinate %one + %other of a dimension lies, or -1
define internal i64 @looked_up(ptr %table, i64 %one, i64 %other) alwaysinline {{
  %coordinate = add i64 %one, %other
  %offset = call i64 @word(ptr %table, i64 %coordinate)
  ret i64 %offset
}}

define internal void @pack(
    ptr %record, ptr %instance, i64 %first_run, i64 %run_end, i64 %first_row, i64 %row_end) noinline {{
entry:
  %x = call ptr @pointer(ptr %record, i64 0)
  %panel = call ptr @pointer(ptr %record, i64 3)
  %length = call i64 @word(ptr %record, i64 16)
  %size1 = call i64 @word(ptr %record, i64 24)
  %size2 = call i64 @word(ptr %record, i64 29)
  %size3 = call i64 @word(ptr %record, i64 34)
  %runs = call ptr @pointer(ptr %record, i64 40)
  %table0 = call ptr @pointer(ptr %record, i64 41)
  %table1 = call ptr @pointer(ptr %record, i64 42)
  %table2 = call ptr @pointer(ptr %record, i64 43)
  br label %row
row:
  %r = phi i64 [ %first_row, %entry ], [ %next_row, %row_done ]
  %row_to = phi ptr [ %panel, %entry ], [ %next_to, %row_done ]
{digits}
  %base = call i64 @outer_part(ptr %record, ptr %instance, i64 %d0, i64 %d1, i64 %d2, i64 %d3, i64 0)
  %c0 = call i64 @outer_part(ptr %record, ptr %instance, i64 %d0, i64 %d1, i64 %d2, i64 %d3, i64 1)
  %c1 = call i64 @outer_part(ptr %record, ptr %instance, i64 %d0, i64 %d1, i64 %d2, i64 %d3, i64 2)
  %c2 = call i64 @outer_part(ptr %record, ptr %instance, i64 %d0, i64 %d1, i64 %d2, i64 %d3, i64 3)
  %from_row = getelementptr i8, ptr %x, i64 %base
  br label %run
run:
  %k = phi i64 [ %first_run, %row ], [ %next_run, %run_done ]
  %to = phi ptr [ %row_to, %row ], [ %next_to, %run_done ]
  %four = mul i64 %k, 4
  %place = getelementptr i64, ptr %runs, i64 %four
  %run_base = call i64 @word(ptr %place, i64 0)
  %r0 = call i64 @word(ptr %place, i64 1)
  %r1 = call i64 @word(ptr %place, i64 2)
  %r2 = call i64 @word(ptr %place, i64 3)
  %o0 = call i64 @looked_up(ptr %table0, i64 %c0, i64 %r0)
  %o1 = call i64 @looked_up(ptr %table1, i64 %c1, i64 %r1)
  %o2 = call i64 @looked_up(ptr %table2, i64 %c2, i64 %r2)
  %o01 = or i64 %o0, %o1
  %signs = or i64 %o01, %o2
  %outside = icmp slt i64 %signs, 0
  br i1 %outside, label %clear, label %copy
clear:
  call void @clear_run(ptr %to, i64 %length)
  br label %run_done
copy:
  %s0 = add i64 %o0, %o1
  %s1 = add i64 %s0, %o2
  %s2 = add i64 %s1, %run_base
  %from = getelementptr i8, ptr %from_row, i64 %s2
  call void @copy_run(ptr %to, ptr %from, i64 %length)
  br label %run_done
run_done:
  %next_to = getelementptr {t}, ptr %to, i64 %length
  %next_run = add i64 %k, 1
  %more_runs = icmp ult i64 %next_run, %run_end
  br i1 %more_runs, label %run, label %row_done
row_done:
  %next_row = add i64 %r, 1
  %more_rows = icmp ult i64 %next_row, %row_end
  br i1 %more_rows, label %row, label %end
end:
  ret void
}}

define internal void @multiply(
    ptr %record, ptr %instance, i64 %first_inner, i64 %inner, i64 %first_outer, i64 %outer) noinline {{
  %w = call ptr @pointer(ptr %record, i64 1)
  %out = call ptr @pointer(ptr %record, i64 2)
  %panel = call ptr @pointer(ptr %record, i64 3)
  %side = call i64 @word(ptr %record, i64 4)
  %n = call i64 @word(ptr %record, i64 5)
  %order = call i64 @word(ptr %record, i64 6)
  %trans_a = call i64 @word(ptr %record, i64 7)
  %trans_b = call i64 @word(ptr %record, i64 8)
  %ldb = call i64 @word(ptr %record, i64 9)
  %ldc = call i64 @word(ptr %record, i64 10)
  %w_step = call i64 @word(ptr %record, i64 11)
  %out_step = call i64 @word(ptr %record, i64 12)
  %w_base = call i64 @word(ptr %instance, i64 4)
  %out_base = call i64 @word(ptr %instance, i64 5)
  %inner_is_depth = icmp ne i64 %side, 0
  %m = select i1 %inner_is_depth, i64 %outer, i64 %inner
  %k = select i1 %inner_is_depth, i64 %inner, i64 %outer
  %first_m = select i1 %inner_is_depth, i64 %first_outer, i64 %first_inner
  %first_k = select i1 %inner_is_depth, i64 %first_inner, i64 %first_outer
  %w_way = mul i64 %first_k, %w_step
  %w_offset = add i64 %w_base, %w_way
  %b = getelementptr i8, ptr %w, i64 %w_offset
  %out_way = mul i64 %first_m, %out_step
  %out_offset = add i64 %out_base, %out_way
  %c = getelementptr i8, ptr %out, i64 %out_offset
  %is_first = icmp eq i64 %first_k, 0
  %beta = select i1 %is_first, {t} 0.0, {t} 1.0
  %lda = add i64 %inner, 0
{arguments}
  %order_arg = trunc i64 %order to i32
  %trans_a_arg = trunc i64 %trans_a to i32
  %trans_b_arg = trunc i64 %trans_b to i32
  call void @gemm(i32 %order_arg, i32 %trans_a_arg, i32 %trans_b_arg, {index} %m_arg, {index} %n_arg, {index} %k_arg,
    {t} 1.0, ptr %panel, {index} %lda_arg, ptr %b, {index} %ldb_arg, {t} %beta, ptr %c, {index} %ldc_arg)
  ret void
}}

define void @{name}(ptr %record) {{
entry:
  %rows = call i64 @word(ptr %record, i64 13)
  %rows_per_block = call i64 @word(ptr %record, i64 14)
  %runs = call i64 @word(ptr %record, i64 15)
  %length = call i64 @word(ptr %record, i64 16)
  %runs_per_block = call i64 @word(ptr %record, i64 17)
  %instance_count = call i64 @word(ptr %record, i64 18)
  %instances = call ptr @pointer(ptr %record, i64 39)
  br label %instance_loop
instance_loop:
  %g = phi i64 [ 0, %entry ], [ %next_g, %instance_done ]
  %six = mul i64 %g, 6
  %instance = getelementptr i64, ptr %instances, i64 %six
  br label %run_block
run_block:
  %k = phi i64 [ 0, %instance_loop ], [ %next_k, %run_block_done ]
  %k_full = add i64 %k, %runs_per_block
  %k_over = icmp ugt i64 %k_full, %runs
  %next_k = select i1 %k_over, i64 %runs, i64 %k_full
  %k_count = sub i64 %next_k, %k
  %inner = mul i64 %k_count, %length
  %first_inner = mul i64 %k, %length
  br label %row_block
row_block:
  %r = phi i64 [ 0, %run_block ], [ %next_r, %row_block ]
  %r_full = add i64 %r, %rows_per_block
  %r_over = icmp ugt i64 %r_full, %rows
  %next_r = select i1 %r_over, i64 %rows, i64 %r_full
  %outer = sub i64 %next_r, %r
  call void @pack(ptr %record, ptr %instance, i64 %k, i64 %next_k, i64 %r, i64 %next_r)
  call void @multiply(ptr %record, ptr %instance, i64 %first_inner, i64 %inner, i64 %r, i64 %outer)
  %more_rows = icmp ult i64 %next_r, %rows
  br i1 %more_rows, label %row_block, label %run_block_done
run_block_done:
  %more_runs = icmp ult i64 %next_k, %runs
  br i1 %more_runs, label %run_block, label %instance_done
instance_done:
  %next_g = add i64 %g, 1
  %more_instances = icmp ult i64 %next_g, %instance_count
  br i1 %more_instances, label %instance_loop, label %end
end:
  ret void
}}
"""
