"""Record of a product and what is computed of it, block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from runtime.program.blocks import Span, blocks_of
from runtime.program.kernel import Kernel
from runtime.program.records.dot import DotKernel, FactorOperands
from runtime.program.records.loop import LoopKernel
from runtime.program.records.rows import RowKernel
from runtime.program.strides import dense_strides

#: Indices along each dimension of a product.
Box: TypeAlias = tuple[Span, ...]


Epilogue: TypeAlias = LoopKernel | RowKernel


@dataclass(frozen=True)
class ProductEpilogueKernel(Kernel):
    """``epilogue`` of what ``product`` gives, at the indices of ``region``.

    operands: the epilogue's, two of which are the product's as matrices, as ``factors`` says. Behind the last one the
    epilogue has the product itself: result ``product_result``, or where that is None a block of it at a time in scratch. scratch:
    the product's, the block where there is one, the epilogue's.

    dims: of the whole product; ``batch`` of them count products, the ``rows`` behind them rows of lhs, the others
    columns of rhs. block: sizes of a part that is done at once. Of those that count products, of the rows and of the
    columns, all but the first that it has several of are whole behind it, and single before.
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
        """The blocks of the region, in row-major order."""
        region = tuple((span.start, span.stop) for span in self.region)
        for box in blocks_of(region, self.block):
            yield tuple(Span(start, stop) for start, stop in box)

    @property
    def cut_dimensions(self) -> tuple[int, ...]:
        """The first of those that count products, of the rows and of the columns, along which it can be done in parts.

        In this order, but for the longer of rows and columns first.
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
        """Rows and columns of a block, in the product as a matrix."""
        first = self.batch + self.rows
        rows, columns = slice(self.batch, first), slice(first, None)
        return _line(block[rows], self.dims[rows]), _line(block[columns], self.dims[columns])

    def product_of(self, block: Box) -> DotKernel:
        """Return the product that computes a block."""
        rows, columns = self.lines(block)
        batch = tuple(span.size for span in block[: self.batch])
        return replace(self.product, batch=batch, m=rows.size, n=columns.size)


def _line(spans: Sequence[Span], dims: Sequence[int]) -> Span:
    """Indices of several dimensions as those of one."""
    start = sum(
        span.start * step for span, step in zip(spans, dense_strides(tuple(dims), 1), strict=True)
    )
    return Span(start, start + math.prod(span.size for span in spans))
