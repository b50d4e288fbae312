"""Blocks of an index space, and parts of kernels: the loop or the rows of some of the indices of a dimension."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from runtime.program.records.loop import LoopKernel, Numbers, OperandElements
from runtime.program.records.rows import PassLeaves, RowKernel, RowLeaf
from runtime.program.strides import Range, StridedView
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray


@dataclass(frozen=True, slots=True)
class Span:
    """Indices from ``start`` up to, but without, ``stop`` of a dimension."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of indices."""
        return self.stop - self.start

    def of(self, array: NDArray, dimension: int) -> NDArray:
        """Return the view of ``array`` at these indices of ``dimension``."""
        index = (slice(None),) * dimension + (slice(self.start, self.stop),)
        part: NDArray = array[index]
        return part


#: (first index, end) along each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]


def full_box(dims: Sequence[int]) -> Box:
    """Return the box of all indices of an array of sizes ``dims``."""
    return tuple([(0, size) for size in dims])


def blocks_of(region: Box, block: Sequence[int]) -> Iterator[Box]:
    """Yield the blocks of sizes ``block`` that cover ``region``, in row-major order.

    The last block along a dimension may be smaller.
    """
    spans = [
        [(at, min(at + step, stop)) for at in range(start, stop, step)]
        for (start, stop), step in zip(region, block, strict=True)
    ]
    return itertools.product(*spans)


# ---- parts of kernels along a dimension: kernels for fewer indices, on the same arrays


def _view(view: StridedView, d: int, span: Span) -> StridedView:
    dims = (*view.dims[:d], span.size, *view.dims[d + 1 :])
    return replace(view, dims=dims, offset=view.offset + span.start * view.strides[d])


def loop_part(kernel: LoopKernel, d: int, span: Span) -> LoopKernel:
    """Return the part of ``kernel`` that computes the indices ``span`` of dimension ``d``, on the same arrays."""
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
    """Return the part of ``kernel`` that computes the rows ``span`` of dimension ``d``, on the same arrays.

    ``d`` must be one of the dimensions that number the rows (``RowFusion.counted``).
    """
    fusion = kernel.fusion
    among_rows = fusion.counted.index(d)

    def view(full: StridedView) -> StridedView:
        """Return the part of ``full``, a view over all dimensions or over those that number the rows."""
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
