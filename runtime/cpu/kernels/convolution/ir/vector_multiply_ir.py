"""Native code of small matrix products in vector registers: a few rows of broadcast numbers by two vectors of columns.

The numbers of rows and lanes depend on the processor's registers. A height is a number of rows multiplied at a time.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements.builder import Value
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import splat
from runtime.codegen.llvm.jit import host_has
from runtime.program.records.convolution import ACROSS, LeftLayout, VectorMicroKernel

#: Bytes of a number.
ITEM = 4
#: Largest depth of a product, and row stride of the left side: an odd number of lines, so that rows map to different
#: sets of the cache.
DEPTH, PITCH = 576, 592
#: Bytes of a line of cache.
LINE = 64


@cache
def vector_micro_kernel() -> VectorMicroKernel | None:
    """Return the host's micro-kernel; None if its vectors are short or it has no fused multiply-add."""
    if host_has("avx512f", "avx512vl"):
        return VectorMicroKernel(16, (14, 8))
    if host_has("avx2", "fma"):
        return VectorMicroKernel(8, (6, 4))
    return None


def vector_type(variant: VectorMicroKernel) -> str:
    return f"<{variant.lanes} x float>"


def mask_type(variant: VectorMicroKernel) -> str:
    return f"<{variant.lanes} x i1>"


def add_lanes(module: Module, variant: VectorMicroKernel) -> None:
    """Add ``lanes``(count), which returns a mask of the first ``count`` lanes, empty if that is negative."""
    n = variant.lanes
    f = FunctionWriter(
        "lanes",
        module=module,
        parameters=("i64",),
        result=mask_type(variant),
        linkage="internal",
        attributes="alwaysinline",
    )
    every = splat(f.parameters[0].smax(0).smin(n).resized("i32"), n)
    numbers = ", ".join([f"i32 {i}" for i in range(n)])
    f.ret(Value(f, mask_type(variant), f.append(f"icmp sgt {every.type} {every}, <{numbers}>")))
    f.finish()


def multiply_ir(variant: VectorMicroKernel, left: LeftLayout) -> str:
    """Return ``@multiply``(a, b, depth, rows, at, columns, height, add).

    b: [depth, columns], contiguous. rows: addresses of the result's rows; at: offset of their first column.
    """
    tall, low = variant.heights
    arguments = "ptr %a, ptr %b, i64 %depth, ptr %rows, i64 %at, i64 %columns"
    given = arguments + ", i1 %add"
    products = "\n".join(_product(variant, left, height, given) for height in variant.heights)
    return f"""{products}
define internal void @multiply({arguments}, i64 %height, i1 %add) alwaysinline {{
  %is_tall = icmp ugt i64 %height, {low}
  br i1 %is_tall, label %tall, label %low
tall:
  call void @multiply{tall}({given})
  ret void
low:
  call void @multiply{low}({given})
  ret void
}}
"""


def _product(variant: VectorMicroKernel, left: LeftLayout, height: int, arguments: str) -> str:
    kind, n = vector_type(variant), variant.lanes
    row_step, depth_step = (PITCH, 1) if left is LeftLayout.ROWS else (1, n)
    each = [(i, v) for i in range(height) for v in range(ACROSS)]
    lines = [
        f"define internal void @multiply{height}({arguments}) noinline {{",
        "entry:",
        *_fetched(height),
        "  br label %loop",
        "loop:",
        "  %k = phi i64 [ 0, %entry ], [ %next, %loop ]",
        "  %a_k = phi ptr [ %a, %entry ], [ %a_next, %loop ]",
        "  %b_k = phi ptr [ %b, %entry ], [ %b_next, %loop ]",
    ]
    lines += [
        f"  %s{i}_{v} = phi {kind} [ zeroinitializer, %entry ], [ %t{i}_{v}, %loop ]"
        for i, v in each
    ]
    for v in range(ACROSS):
        lines += [
            f"  %pb{v} = getelementptr float, ptr %b_k, i64 {v * n}",
            f"  %b{v} = load {kind}, ptr %pb{v}, align {ITEM * n}",
        ]
    for i in range(height):
        lines += [
            f"  %pa{i} = getelementptr float, ptr %a_k, i64 {i * row_step}",
            f"  %a{i} = load float, ptr %pa{i}",
            f"  %o{i} = insertelement {kind} poison, float %a{i}, i32 0",
            f"  %w{i} = shufflevector {kind} %o{i}, {kind} poison, <{n} x i32> zeroinitializer",
        ]
        lines += [
            f"  %t{i}_{v} = call {kind} @llvm.fma.v{n}f32({kind} %w{i}, {kind} %b{v}, {kind} %s{i}_{v})"
            for v in range(ACROSS)
        ]
    lines += [
        f"  %a_next = getelementptr float, ptr %a_k, i64 {depth_step}",
        f"  %b_next = getelementptr float, ptr %b_k, i64 {ACROSS * n}",
        "  %next = add nuw nsw i64 %k, 1",
        "  %more = icmp ult i64 %next, %depth",
        "  br i1 %more, label %loop, label %end",
        *_written(variant, height),
    ]
    return "\n".join([*lines, "}", ""])


def _fetched(height: int) -> list[str]:
    """Return lines that compute the addresses of the result's rows and prefetch them."""
    lines = []
    for i in range(height):
        lines += [
            f"  %rp{i} = getelementptr ptr, ptr %rows, i64 {i}",
            f"  %start{i} = load ptr, ptr %rp{i}",
            f"  %row{i} = getelementptr i8, ptr %start{i}, i64 %at",
            f"  call void @llvm.prefetch.p0(ptr %row{i}, i32 1, i32 3, i32 1)",
            f"  %second{i} = getelementptr i8, ptr %row{i}, i64 {LINE}",
            f"  call void @llvm.prefetch.p0(ptr %second{i}, i32 1, i32 3, i32 1)",
        ]
    return lines


def _written(variant: VectorMicroKernel, height: int) -> list[str]:
    """Return lines that store or accumulate sums; full vectors without masks, which some processors execute slowly."""
    kind, n = vector_type(variant), variant.lanes
    masks = []
    for v in range(ACROSS):
        masks += [
            f"  %left{v} = sub i64 %columns, {v * n}",
            f"  %mask{v} = call <{n} x i1> @lanes(i64 %left{v})",
            f"  %old{v} = select i1 %add, <{n} x i1> %mask{v}, <{n} x i1> zeroinitializer",
        ]
    load = f"call {kind} @llvm.masked.load.v{n}f32.p0"
    store = f"call void @llvm.masked.store.v{n}f32.p0"
    adding, writing, part = [], [], []
    for i in range(height):
        for v in range(ACROSS):
            one, aligned = f"{i}_{v}", f"align {ITEM}"
            pointer = f"getelementptr float, ptr %row{i}, i64 {v * n}"
            adding += [
                f"  %pa{one} = {pointer}",
                f"  %la{one} = load {kind}, ptr %pa{one}, {aligned}",
                f"  %ra{one} = fadd {kind} %t{one}, %la{one}",
                f"  store {kind} %ra{one}, ptr %pa{one}, {aligned}",
            ]
            writing += [
                f"  %pw{one} = {pointer}",
                f"  store {kind} %t{one}, ptr %pw{one}, {aligned}",
            ]
            part += [
                f"  %pm{one} = {pointer}",
                f"  %lm{one} = {load}(ptr %pm{one}, i32 {ITEM}, <{n} x i1> %old{v}, {kind} zeroinitializer)",
                f"  %rm{one} = fadd {kind} %t{one}, %lm{one}",
                f"  {store}({kind} %rm{one}, ptr %pm{one}, i32 {ITEM}, <{n} x i1> %mask{v})",
            ]
    return [
        "end:",
        f"  %is_full = icmp uge i64 %columns, {variant.columns}",
        "  br i1 %is_full, label %full, label %part",
        "full:",
        "  br i1 %add, label %adding, label %writing",
        *("adding:", *adding, "  ret void"),
        *("writing:", *writing, "  ret void"),
        *("part:", *masks, *part, "  ret void"),
    ]
