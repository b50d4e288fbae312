"""Record of a product and of the epilogue that is computed of it, block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from runtime.program.blocks import Span, blocks_of
from runtime.program.kernel import Kernel
from runtime.program.records.dot import DotKernel, FactorOperands
from runtime.program.records.loop import LoopKernel
from runtime.program.records.rows import RowKernel
from runtime.program.strides import dense_strides
from spmd.lazy_dataclass import dataclass

#: Indices along each dimension of a product.
Box: TypeAlias = tuple[Span, ...]


Epilogue: TypeAlias = LoopKernel | RowKernel


@dataclass(frozen=True)
class ProductEpilogueKernel(Kernel):
    """Product of two matrices (or a batch of them) and an epilogue of its elements, at the indices of ``region``.

    operands: those of the epilogue, of which ``factors`` names the two that the product reads as matrices. The last
    input of the epilogue is the product: result number ``product_result``, or, if that is None, one block of it at a
    time in scratch. scratch: that of the product of a block, the block if there is one, that of the epilogue.

    dims: sizes of the entire product. The first ``batch`` dimensions count products, the next ``rows`` are rows of lhs,
    the others are columns of rhs. block: sizes of the part that is computed at a time. Among the dimensions of each
    of the three kinds at most one is cut: dimensions before it have size 1 in a block, those behind it their full size.
    """

    product: DotKernel
    factors: FactorOperands
    epilogue: Epilogue
    product_result: int | None
    dims: tuple[int, ...]
    batch: int
    rows: int
    block: tuple[int, ...]
    region: Box

    @property
    def blocks(self) -> Iterator[Box]:
        """The blocks of ``region``, in row-major order."""
        region = tuple((span.start, span.stop) for span in self.region)
        for box in blocks_of(region, self.block):
            yield tuple(Span(start, stop) for start, stop in box)

    @property
    def cut_dimensions(self) -> tuple[int, ...]:
        """The dimensions along which threads may divide the kernel.

        Of the batch, the rows and the columns it is the first dimension larger than 1, if it can be cut. The batch
        comes first, then the longer one of rows and columns.
        """
        first = self.batch + self.rows
        sides = [range(self.batch, first), range(first, len(self.dims))]
        sides.sort(key=lambda side: -math.prod(self.dims[d] for d in side))
        found = []
        for side in (range(self.batch), *sides):
            wide = [d for d in side if self.dims[d] > 1]
            if wide and self._is_cut_along(wide[0]):
                found.append(wide[0])
        return tuple(found)

    def _is_cut_along(self, d: int) -> bool:
        return isinstance(self.epilogue, LoopKernel) or d in self.epilogue.fusion.counted

    def lines(self, block: Box) -> tuple[Span, Span]:
        """Return the rows and the columns of ``block`` in the product as a matrix."""
        first = self.batch + self.rows
        rows, columns = slice(self.batch, first), slice(first, None)
        return _line(block[rows], self.dims[rows]), _line(block[columns], self.dims[columns])

    def product_of(self, block: Box) -> DotKernel:
        """Return the product that computes ``block``, or a part of it for one of several threads."""
        rows, columns = self.lines(block)
        batch = tuple(span.size for span in block[: self.batch])
        entire = product_of_block(self.product, self.block[self.batch :], self.rows)
        return replace(entire.part(m=rows.size, n=columns.size), batch=batch)


def product_of_block(product: DotKernel, block: Sequence[int], rows: int) -> DotKernel:
    """Return the part of ``product`` that computes a block of full size: ``rows`` dimensions of rows, then columns."""
    return replace(product, m=math.prod(block[:rows]), n=math.prod(block[rows:]))


def _line(spans: Sequence[Span], dims: Sequence[int]) -> Span:
    """Return the indices of several dimensions as those of one merged dimension."""
    start = sum(
        span.start * step for span, step in zip(spans, dense_strides(tuple(dims), 1), strict=True)
    )
    return Span(start, start + math.prod(span.size for span in spans))
