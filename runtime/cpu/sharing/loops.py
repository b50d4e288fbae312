"""Loops, row fusions and copies: cut along a dimension of what they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.cpu.sharing.pieces import CUTS, Piece, bytes_apart, longest, scratch_like, spans
from runtime.program.blocks import Span, loop_part, rows_part
from runtime.program.kernel import KernelArrays
from runtime.program.records.copy import CopyKernel
from runtime.program.records.loop import LoopKernel, NativeElementwiseKernel, PiecesKernel
from runtime.program.records.rows import RowKernel
from runtime.program.strides import StridedView

#: Multiple of elements per piece along the contiguous dimension: full cache lines, full tiles of loops that transpose.
LINE = 64


@CUTS.register(LoopKernel)
def cut_loop(kernel: LoopKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    views = kernel.results
    d = longest(kernel.dims, bytes_apart([view.strides for view in views]), count)
    if d is None:
        return ()
    return [(loop_part(kernel, d, span), arrays) for span in _cut(kernel.dims, d, views, count)]


@CUTS.register(PiecesKernel)
def cut_pieces(kernel: PiecesKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Return no pieces: a later loop may read what an earlier one has written."""
    return ()


@CUTS.register(RowKernel)
def cut_rows(kernel: RowKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along a dimension that counts rows. Each piece has scratch rows of its own."""
    fusion = kernel.fusion
    views = [_spread(view, kernel) for view in fusion.results]
    strides = bytes_apart([view.strides for view in views])
    rows = tuple(size if d in fusion.counted else 1 for d, size in enumerate(fusion.dims))
    d = longest(rows, strides, count)
    if d is None:
        return ()
    return [
        (rows_part(kernel, d, span), replace(arrays, scratch=scratch_like(arrays.scratch)))
        for span in _cut(fusion.dims, d, views, count)
    ]


@CUTS.register(CopyKernel)
def cut_copy(kernel: CopyKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    (source,), (target,) = arrays.operands, arrays.results
    d = longest(target.shape, bytes_apart([target.strides]), count)
    if d is None or source.shape != target.shape:
        return ()
    multiple = LINE if target.strides[d] == target.itemsize else 1
    return [
        (kernel, KernelArrays((span.of(source, d),), (span.of(target, d),)))
        for span in spans(target.shape[d], count, multiple)
    ]


def _cut(dims: Sequence[int], d: int, written: Sequence[StridedView], count: int) -> Sequence[Span]:
    packed = any(view.strides[d] == view.element_type.byte_size for view in written)
    return spans(dims[d], count, LINE if packed else 1)


def _spread(view: StridedView, kernel: RowKernel) -> StridedView:
    """Return the view over all indices; ``view`` is over all indices or over the rows only."""
    fusion = kernel.fusion
    if len(view.dims) == len(fusion.dims):
        return view
    steps = dict(zip(fusion.counted, view.strides, strict=True))
    strides = tuple(steps.get(d, 0) for d in range(len(fusion.dims)))
    return replace(view, dims=fusion.dims, strides=strides)


@CUTS.register(NativeElementwiseKernel)
def cut_elementwise(
    kernel: NativeElementwiseKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
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
