"""Division of matrix products, with and without epilogue, along a batch dimension or along rows or columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from collectives.communicator.actions.shared_buffers import private_array
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.native_dot import is_small
from runtime.cpu.libraries.blas import cut_multiples
from runtime.cpu.sharing.pieces import CUTS, CUTS_IN_TURN, Cut, Piece, scratch_like, spans
from runtime.program.blocks import Span
from runtime.program.kernel import Kernel, KernelArrays
from runtime.program.records.dot import DotKernel, SlicedProductKernel
from runtime.program.records.product_epilogue import ProductEpilogueKernel
from spmd.literal import NDArray

#: Multiple of rows and columns at which products are cut that BLAS does not compute: integer products, which are exact,
#: and products by generated code.
_OWN = 32


@CUTS.register(DotKernel)
def cut_dot(kernel: DotKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along the largest batch dimension if it has at least ``count`` indices, else along rows or columns.

    Of rows and columns, the longer is cut if a cut there keeps the product's bits, else the other. The same algorithm
    must compute the pieces and the entire product; otherwise fewer pieces are tried.
    """
    batch = len(kernel.batch)
    if kernel.batch and max(kernel.batch) >= count:
        d = kernel.batch.index(max(kernel.batch))
        return [_of_batch(kernel, arrays, d, span) for span in spans(kernel.batch[d], count)]
    rows, columns = _multiples(kernel, arrays)
    by_row = bool(rows) and (kernel.m >= kernel.n or not columns)
    lines, multiple = (kernel.m, rows) if by_row else (kernel.n, columns)
    if not multiple:
        return ()
    for fewer in range(min(count, lines // tuning.PIECE_LEAST_LINES), 1, -1):
        cut = spans(lines, fewer, multiple)
        pieces = [_of_lines(kernel, arrays, batch, span, by_row=by_row) for span in cut]
        if len(pieces) > 1 and all(_route(piece) == _route(kernel) for piece, _ in pieces):
            return pieces
    return ()


def _multiples(kernel: DotKernel, arrays: KernelArrays) -> tuple[int, int]:
    """Return the multiples of rows and of columns at which a cut keeps the product's bits; 0 if no cut does."""
    _, thin, is_vector, small, _ = _route(kernel)
    if kernel.compute.is_integer or thin or is_vector or small:
        return _OWN, _OWN
    batch, out = len(kernel.batch), arrays.results[0]
    multiples = cut_multiples(kernel.compute)
    rows, columns = multiples.slow, multiples.fast
    if kernel.scratch_dims():  # BLAS computes blocks of full rows, which vary slower in memory
        return rows if kernel.block_rows == kernel.m else math.lcm(rows, kernel.block_rows), columns
    if out.strides[batch] < out.strides[batch + 1]:
        rows, columns = columns, rows
    return rows, columns


@CUTS_IN_TURN.register(DotKernel)
def cut_dot_in_turn(kernel: DotKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along columns as far as pieces stay wide enough, then along rows; a product with a batch along the batch.

    The two cuts together may give a few more than ``count`` pieces. The same algorithm must compute the pieces and the
    entire product; otherwise half as many pieces are tried.
    """
    if max(kernel.batch, default=1) > 1:
        return cut_dot(kernel, arrays, min(count, max(kernel.batch)))
    down, across = _multiples(kernel, arrays)
    while count > 1:
        width = max(tuning.PIECE_LEAST_COLUMNS, math.ceil(tuning.PIECE_LEAST_AREA / kernel.m))
        columns = _spans(kernel.n, min(count, kernel.n // width), across)
        height = math.ceil(tuning.PIECE_LEAST_AREA / columns[0].size)
        rows = _spans(kernel.m, min(math.ceil(count / len(columns)), kernel.m // height), down)
        pieces = _grid(kernel, arrays, rows, columns)
        if all(_route(piece) == _route(kernel) for piece, _ in pieces):
            return pieces
        count = min(count, len(pieces)) // 2
    return ()


def _spans(size: int, count: int, multiple: int) -> list[Span]:
    """Cut ``range(size)`` as ``spans`` does, or return it uncut if ``multiple`` is 0."""
    return spans(size, count, multiple) if multiple else [Span(0, size)]


def _grid(
    kernel: DotKernel, arrays: KernelArrays, rows: Sequence[Span], columns: Sequence[Span]
) -> list[Piece]:
    """Return a piece for each pair of a span of columns and a span of rows, one span of columns after another."""
    batch = len(kernel.batch)
    pieces = []
    for column in columns:
        strip, own = _of_lines(kernel, arrays, batch, column, by_row=False)
        assert isinstance(strip, DotKernel)
        pieces += [_of_lines(strip, own, batch, row, by_row=True) for row in rows]
    return pieces


@CUTS.register(SlicedProductKernel)
def cut_sliced(kernel: SlicedProductKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut the product of the slices as ``cut_dot`` does. Every piece computes the starts of the slices itself."""
    return _sliced(kernel, arrays, count, cut_dot)


@CUTS_IN_TURN.register(SlicedProductKernel)
def cut_sliced_in_turn(
    kernel: SlicedProductKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Cut the product of the slices as ``cut_dot_in_turn`` does. Every piece computes the starts of the slices."""
    return _sliced(kernel, arrays, count, cut_dot_in_turn)


def _sliced(
    kernel: SlicedProductKernel, arrays: KernelArrays, count: int, cut: Cut
) -> Sequence[Piece]:
    """Cut ``kernel.product`` with ``cut``, and return the pieces as sliced products."""
    numbers = (kernel.factors.lhs, kernel.factors.rhs)
    matrices = tuple(arrays.operands[n] for n in numbers)
    pieces = []
    for product, own in cut(kernel.product, replace(arrays, operands=matrices), count):
        assert isinstance(product, DotKernel)
        operands = list(arrays.operands)
        for n, matrix in zip(numbers, own.operands, strict=True):
            operands[n] = matrix
        pieces.append((replace(kernel, product=product), replace(own, operands=tuple(operands))))
    return pieces


@CUTS.register(ProductEpilogueKernel)
def cut_epilogue(
    kernel: ProductEpilogueKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Cut along the first of ``kernel.cut_dimensions`` that gives several pieces. Each piece has its own scratch.

    The same algorithm must compute the pieces' products and that of the entire kernel.
    """
    first = kernel.product_of(next(kernel.blocks))
    for d in kernel.cut_dimensions:
        size, multiple = kernel.dims[d], kernel.block[d]
        if d >= kernel.batch and multiple == size:
            multiple = _multiple_within_a_row_block(kernel, arrays, d)
            if not multiple:
                continue
        regions = [
            (*kernel.region[:d], span, *kernel.region[d + 1 :])
            for span in spans(size, count, multiple)
        ]
        parts = [replace(kernel, region=region) for region in regions]
        same_route = all(_route(x.product_of(next(x.blocks))) == _route(first) for x in parts)
        if len(parts) > 1 and same_route:
            return [(x, replace(arrays, scratch=scratch_like(arrays.scratch))) for x in parts]
    return ()


def _multiple_within_a_row_block(
    kernel: ProductEpilogueKernel, arrays: KernelArrays, d: int
) -> int:
    """Return the multiple of indices at which a block may be cut along ``d``, a dimension of rows or of columns.

    The block must cover dimension ``d`` entirely. Returns 0 if no cut keeps the product's bits.
    """
    multiples = cut_multiples(kernel.product.compute)
    is_row = d < kernel.batch + kernel.rows
    if kernel.product_result is not None:
        strides = arrays.results[kernel.product_result].strides
        if strides[kernel.batch] < strides[kernel.batch + kernel.rows]:
            is_row = not is_row
    return multiples.slow if is_row else multiples.fast


def _route(kernel: DotKernel | Kernel) -> tuple[bool, ...]:
    """Return a key of the algorithm that computes the product. Other algorithms may round sums differently."""
    assert isinstance(kernel, DotKernel)
    m, k, n = kernel.m, kernel.k, kernel.n
    large = max(m, n) * k * kernel.compute.byte_size >= tuning.THIN_LEAST_BYTES
    thin = large and min(m, n) <= tuning.THIN_MOST_ROWS
    small = is_small(m, n, k) or is_small(n, m, k)  # a column-major result is computed transposed
    summed = thin and min(m, n) <= tuning.MOST_SUMMED
    return tuning.TILE_THRESHOLDS.at(m, n, k), thin, min(m, n) == 1, small, summed


def _of_batch(kernel: DotKernel, arrays: KernelArrays, d: int, span: Span) -> Piece:
    """Return the piece that computes the indices ``span`` of batch dimension ``d``."""
    sizes = (*kernel.batch[:d], span.size, *kernel.batch[d + 1 :])
    lhs, rhs = (span.of(array, d) for array in arrays.operands)
    (out,) = arrays.results
    return _piece(replace(kernel, batch=sizes), lhs, rhs, span.of(out, d))


def _of_lines(
    kernel: DotKernel, arrays: KernelArrays, batch: int, span: Span, *, by_row: bool
) -> Piece:
    """Return the piece that computes the rows or columns ``span``. ``batch``: number of batch dimensions."""
    lhs, rhs = arrays.operands
    (out,) = arrays.results
    if by_row:
        part = kernel.part(m=span.size)
        return _piece(part, span.of(lhs, batch), rhs, span.of(out, batch))
    part = kernel.part(n=span.size)
    return _piece(part, lhs, span.of(rhs, batch + 1), span.of(out, batch + 1))


def _piece(kernel: DotKernel, lhs: NDArray, rhs: NDArray, out: NDArray) -> Piece:
    """Return the piece that computes ``kernel`` on these arrays, with newly allocated scratch."""
    own = tuple(private_array(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
    return kernel, KernelArrays((lhs, rhs), (out,), own)
