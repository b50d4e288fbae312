"""Division of loops, row fusions and copies along a dimension of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.cpu.sharing.pieces import CUTS, Piece, bytes_apart, longest, scratch_like, spans
from runtime.program.blocks import Span, loop_part, rows_part
from runtime.program.kernel import KernelArrays
from runtime.program.records.copy import CopyKernel
from runtime.program.records.loop import LoopKernel
from runtime.program.records.rows import RowKernel
from runtime.program.strides import StridedView

#: Along a contiguous dimension, the number of elements of a piece is a multiple of this: full cache lines, and full
#: tiles of loops that transpose.
LINE = 64


@CUTS.register(LoopKernel)
def cut_loop(kernel: LoopKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along the dimension that ``longest`` selects. Each piece has the arrays of ``kernel``.

    A PiecesKernel has no such function, because a later loop may read elements that an earlier one has written.
    """
    views = kernel.results
    d = longest(kernel.dims, bytes_apart([view.strides for view in views]), count)
    if d is None:
        return ()
    return [(loop_part(kernel, d, span), arrays) for span in _cut(kernel.dims, d, views, count)]


@CUTS.register(RowKernel)
def cut_rows(kernel: RowKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along one of the dimensions that number the rows. Each piece has its own scratch."""
    fusion = kernel.fusion
    views = [
        replace(view, dims=fusion.dims, strides=fusion.spread(view.strides))
        for view in fusion.results
    ]
    strides = bytes_apart([view.strides for view in views])
    rows = tuple(size if d in fusion.counted else 1 for d, size in enumerate(fusion.dims))
    d = longest(rows, strides, count)
    if d is None:
        return ()
    return [
        (rows_part(kernel, d, span), replace(arrays, scratch=scratch_like(arrays.scratch)))
        for span in _cut(fusion.dims, d, views, count)
    ]


def _cut(dims: Sequence[int], d: int, written: Sequence[StridedView], count: int) -> Sequence[Span]:
    """Cut dimension ``d`` into spans, at multiples of LINE if one of the views ``written`` is contiguous along it."""
    packed = any(view.strides[d] == view.element_type.byte_size for view in written)
    return spans(dims[d], count, LINE if packed else 1)


@CUTS.register(CopyKernel)
def cut_copy(kernel: CopyKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along a dimension of the result. Returns no pieces if an operand has another shape, as in a broadcast."""
    (result,) = arrays.results
    d = longest(result.shape, bytes_apart([result.strides]), count)
    if d is None or any(operand.shape != result.shape for operand in arrays.operands):
        return ()
    multiple = LINE if result.strides[d] == result.itemsize else 1
    return [
        (kernel, replace(arrays, operands=parts, results=(span.of(result, d),)))
        for span in spans(result.shape[d], count, multiple)
        for parts in [tuple(span.of(operand, d) for operand in arrays.operands)]
    ]
