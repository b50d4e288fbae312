"""Record of a matrix product with an epilogue that is computed block by block."""

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

#: Span of indices along each dimension of a product.
Box: TypeAlias = tuple[Span, ...]


Epilogue: TypeAlias = LoopKernel | RowKernel


@dataclass(frozen=True)
class ProductEpilogueKernel(Kernel):
    """Matrix product, or batch of products, and an epilogue that reads its elements, at the indices of ``region``.

    The kernel's operands are those of the epilogue. ``factors`` names the two of them that the product reads as
    matrices. The epilogue has the product as an additional last input: result ``product_result`` of the kernel or, if
    that is None, one block of it at a time in scratch. scratch: that of the product of a block, the block if there is
    one, that of the epilogue.

    dims: sizes of the entire product. The first ``batch`` dimensions count products, the next ``rows`` dimensions are
    rows of lhs, the others columns of rhs. block: sizes of the block that is computed at a time. In each of these three
    groups at most one dimension is cut: dimensions before it have size 1 in a block, dimensions after it have their
    full size.
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
        """Blocks that cover ``region``, in row-major order."""
        region = tuple((span.start, span.stop) for span in self.region)
        for box in blocks_of(region, self.block):
            yield tuple(Span(start, stop) for start, stop in box)

    @property
    def cut_dimensions(self) -> tuple[int, ...]:
        """Dimensions along which the kernel may be divided among threads.

        For each of batch, rows and columns, this is the first dimension larger than 1, if the epilogue can be divided
        along it. The order is the batch, then the larger of rows and columns, then the smaller.
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
        """Return the rows and the columns that ``block`` has in the matrix of a product."""
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
    """Return the indices that ``spans`` of dimensions of sizes ``dims`` have in the merged dimension."""
    start = sum(
        span.start * step for span, step in zip(spans, dense_strides(tuple(dims), 1), strict=True)
    )
    return Span(start, start + math.prod(span.size for span in spans))
