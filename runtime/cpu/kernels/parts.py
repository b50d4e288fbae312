"""Parts of kernels along a dimension: the kernel for fewer indices, on the same arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.program.blocks import Span
from runtime.program.index_maps import Range
from runtime.program.records.loop import LoopKernel, Numbers, OperandElements
from runtime.program.records.rows import PassLeaves, RowKernel, RowLeaf
from runtime.program.strides import StridedView


def _view(view: StridedView, d: int, span: Span) -> StridedView:
    dims = (*view.dims[:d], span.size, *view.dims[d + 1 :])
    return replace(view, dims=dims, offset=view.offset + span.start * view.strides[d])


def loop_part(kernel: LoopKernel, d: int, span: Span) -> LoopKernel:
    """Return the kernel for the indices ``span`` of dimension ``d``."""
    return replace(
        kernel,
        dims=(*kernel.dims[:d], span.size, *kernel.dims[d + 1 :]),
        leaves=tuple(replace(leaf, view=_view(leaf.view, d, span)) for leaf in kernel.leaves),
        results=tuple(_view(view, d, span) for view in kernel.results),
        ranges=tuple(_moved(each, d, span) for each in kernel.ranges),
    )


def _moved(each: Range, d: int, span: Span) -> Range:
    if each.dimension != d:
        return each
    return replace(each, first=each.first - span.start, end=each.end - span.start)


def rows_part(kernel: RowKernel, d: int, span: Span) -> RowKernel:
    """Return the kernel for the indices ``span`` of dimension ``d``, which counts rows."""
    fusion = kernel.fusion
    among_rows = fusion.counted.index(d)

    def view(full: StridedView) -> StridedView:
        """Return the part of a view over all indices or over the rows."""
        every = len(full.dims) == len(fusion.dims)
        return _view(full, d if every else among_rows, span)

    def leaves(full: Sequence[RowLeaf]) -> tuple[RowLeaf, ...]:
        return tuple(
            replace(leaf, view=view(leaf.view))
            if isinstance(leaf, OperandElements | Numbers)
            else leaf
            for leaf in full
        )

    return replace(
        kernel,
        fusion=replace(
            fusion,
            dims=(*fusion.dims[:d], span.size, *fusion.dims[d + 1 :]),
            results=tuple(map(view, fusion.results)),
        ),
        leaves=tuple(
            PassLeaves(leaves(each.elements), leaves(each.inits), leaves(each.rows))
            for each in kernel.leaves
        ),
    )
