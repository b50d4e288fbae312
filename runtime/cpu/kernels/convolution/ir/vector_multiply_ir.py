"""Native code of small matrix products in vector registers: a few rows of broadcast numbers by one or two vectors.

The numbers of rows and lanes depend on the processor's registers. A *height* is the number of rows that are multiplied
at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, selected, splat, zeros
from runtime.codegen.ir.vectors import first_lanes, intrinsic, masked_load, masked_store, prefetch
from runtime.codegen.llvm.jit import host_has
from runtime.cpu.kernels.convolution import tuning
from runtime.program.records.convolution import LeftLayout, VectorMicroKernel

#: Size of a number in bytes.
ITEM = 4
#: Size of a cache line in bytes.
LINE = 64


@cache
def vector_micro_kernel(features: int) -> VectorMicroKernel | None:
    """Return the host's micro-kernel for a result of ``features`` columns.

    Its rows are one vector wide if the features fit in it, else two. Returns None if the host's vectors are short or it
    has no fused multiply-add.
    """
    if host_has("avx512f", "avx512vl"):
        wide = VectorMicroKernel(16, tuning.AVX512_HEIGHTS)
        narrow = VectorMicroKernel(16, tuning.AVX512_NARROW_HEIGHTS, across=1)
    elif host_has("avx2", "fma"):
        wide = VectorMicroKernel(8, tuning.AVX2_HEIGHTS)
        narrow = VectorMicroKernel(8, tuning.AVX2_NARROW_HEIGHTS, across=1)
    else:
        return None
    return narrow if features <= narrow.columns else wide


def vector_type(variant: VectorMicroKernel) -> str:
    """Return the LLVM type of a vector of ``variant``."""
    return f"<{variant.lanes} x float>"


def add_multiply(module: Module, variant: VectorMicroKernel, left: LeftLayout) -> None:
    """Add ``multiply``(a, b, depth, rows, at, columns, height, add), which stores or adds the product of a and b.

    ``a`` has the layout ``left``, and ``b`` is [depth, columns of the micro-kernel] and contiguous. ``rows`` lists the
    addresses of the result's rows, and ``at`` is the offset of their first column in bytes. ``columns`` is the number
    of columns to store.
    """
    for height in variant.heights:
        _add_product(module, variant, left, height)
    tall, low = variant.heights
    kinds = (*_PARAMETERS, "i64", "i1")
    f = internal_function(module, "multiply", *kinds, attributes="alwaysinline")
    *given, rows, add = f.parameters
    with f.when(rows.compared("ugt", low)) as is_tall:
        f.call("void", f"multiply{tall}", *given, add)
        is_tall.otherwise()
        f.call("void", f"multiply{low}", *given, add)
    f.finish()


_PARAMETERS = ("ptr", "ptr", "i64", "ptr", "i64", "i64")


def _add_product(module: Module, variant: VectorMicroKernel, left: LeftLayout, height: int) -> None:
    """Add ``multiply{height}``(a, b, depth, rows, at, columns, add), the product of ``height`` rows."""
    f = internal_function(module, f"multiply{height}", *_PARAMETERS, "i1")
    a, b, depth, rows, at, *_ = f.parameters
    kind, n, across = vector_type(variant), variant.lanes, variant.across
    row_step, depth_step = (tuning.PITCH, 1) if left is LeftLayout.ROWS else (1, n)
    results = []
    for i in range(height):
        results.append(rows.pointer(i).at(at))
        prefetch(results[-1], writes=True)
        if across * n * ITEM > LINE:
            prefetch(results[-1].at(LINE), writes=True)
    with f.repeat(0, a, b, *[zeros(f, kind)] * (height * across)) as each:
        k, a_k, b_k, *sums = each.values
        right = [b_k.element("float", v * n).load(kind, align=ITEM * n) for v in range(across)]
        for i in range(height):
            number = splat(a_k.element("float", i * row_step).load("float"), n)
            for v, columns_of_b in enumerate(right):
                total = sums[i * across + v]
                sums[i * across + v] = intrinsic("fma", number, columns_of_b, total)
        following = a_k.element("float", depth_step), b_k.element("float", across * n)
        each.again(k + 1, *following, *sums, when=(k + 1).ult(depth))
    _write_sums(f, variant, results, sums)
    f.finish()


def _write_sums(
    f: FunctionWriter, variant: VectorMicroKernel, rows: list[Pointer], sums: list[Vector]
) -> None:
    """Store or accumulate ``sums``. Full vectors use no masks, which some processors execute slowly."""
    *_, columns, add = f.parameters
    kind, n = vector_type(variant), variant.lanes

    def results() -> Iterator[tuple[Pointer, Vector, int]]:
        for i, total in enumerate(sums):
            row, v = divmod(i, variant.across)
            yield rows[row].element("float", v * n), total, v

    with f.when(columns.compared("uge", variant.columns)) as is_full:
        with f.when(add) as adding:
            for to, total, _ in results():
                to.store(total.combined("fadd", to.load(kind, align=ITEM)), align=ITEM)
            adding.otherwise()
            for to, total, _ in results():
                to.store(total, align=ITEM)
        is_full.otherwise()
        masks = [first_lanes(columns - v * n, n) for v in range(variant.across)]
        old = [selected(add, mask, zeros(f, mask.type)) for mask in masks]
        for to, total, v in results():
            before = masked_load(to, kind, old[v], ITEM)
            masked_store(to, total.combined("fadd", before), masks[v], ITEM)
