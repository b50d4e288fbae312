"""A product and what is computed of it, band by band: each band is read while it is in a near cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np

from runtime.cpu.kernels.gemm.dot import DotKernel
from runtime.cpu.kernels.gemm.sliced_product import FactorPlaces, product_at
from runtime.cpu.kernels.loop.loop import LoopKernel, OperandElements
from runtime.cpu.kernels.native_call import NOTHING, in_order
from runtime.cpu.kernels.parts import Span, loop_part, rows_part
from runtime.cpu.kernels.rows.rows import RowKernel, RowLeaf
from runtime.fusion.product_fusion import bands_of
from runtime.program.kernel import CPU_KERNELS, Action, Kernel, KernelArrays
from runtime.program.strides import StridedView, dense_strides
from spmd.literal import NDArray
from spmd.shape import ArrayShape

#: Indices along each dimension of a product.
Box: TypeAlias = tuple[Span, ...]
Epilogue: TypeAlias = LoopKernel | RowKernel

Leaf = TypeVar("Leaf", bound=RowLeaf)


@dataclass(frozen=True)
class ProductEpilogueKernel(Kernel):
    """``epilogue`` of what ``product`` gives, at the indices of ``region``.

    operands: the epilogue's, two of which are the product's as matrices, as ``factors`` says. Behind the last one the
    epilogue has the product itself: result ``kept``, or where that is None a band of it at a time in scratch. scratch:
    the product's, the band where there is one, the epilogue's.

    dims: of the whole product; ``batch`` of them count products, the ``rows`` behind them rows of lhs, the others
    columns of rhs. band: sizes of a part that is done at once. Of those that count products, of the rows and of the
    columns, all but the first that it has several of are whole behind it, and single before.
    """

    product: DotKernel
    factors: FactorPlaces
    epilogue: Epilogue
    kept: int | None
    dims: tuple[int, ...]
    batch: int
    rows: int
    band: tuple[int, ...]
    region: Box

    @property
    def bands(self) -> Iterator[Box]:
        """Of the region, in row-major order."""
        region = tuple((span.start, span.stop) for span in self.region)
        for box in bands_of(region, self.band):
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

    def lines(self, band: Box) -> tuple[Span, Span]:
        """Rows and columns of a band, in the product as a matrix."""
        first = self.batch + self.rows
        rows, columns = slice(self.batch, first), slice(first, None)
        return _line(band[rows], self.dims[rows]), _line(band[columns], self.dims[columns])

    def product_of(self, band: Box) -> DotKernel:
        """What makes a band."""
        rows, columns = self.lines(band)
        batch = tuple(span.size for span in band[: self.batch])
        return replace(self.product, batch=batch, m=rows.size, n=columns.size)


def _line(spans: Sequence[Span], dims: Sequence[int]) -> Span:
    """Indices of several dimensions as those of one."""
    start = sum(
        span.start * step for span, step in zip(spans, dense_strides(tuple(dims), 1), strict=True)
    )
    return Span(start, start + math.prod(span.size for span in spans))


@CPU_KERNELS.binds(ProductEpilogueKernel)
def bind_product_epilogue(kernel: ProductEpilogueKernel, arrays: KernelArrays) -> Action:
    if 0 in kernel.dims:
        return NOTHING
    return in_order(*(action for band in kernel.bands for action in _band(kernel, arrays, band)))


def _band(kernel: ProductEpilogueKernel, arrays: KernelArrays, band: Box) -> tuple[Action, Action]:
    """The product's part, and what is computed of it."""
    product, (rows, columns) = kernel.product_of(band), kernel.lines(band)
    counted = tuple(slice(span.start, span.stop) for span in band[: kernel.batch])
    down, across = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    operands, results = list(arrays.operands), list(arrays.results)
    factors = kernel.factors
    lhs, rhs = operands[factors.lhs], operands[factors.rhs]
    spare = len(kernel.product.scratch_dims())
    own, scratch = arrays.scratch[:spare], arrays.scratch[spare:]
    if kernel.kept is None:
        operands.append(scratch[0])
        scratch = scratch[1:]
        out = _as(operands[-1], (*product.batch, product.m, product.n))
        epilogue = _at(kernel.epilogue, band, len(operands) - 1)
    else:
        operands.append(results.pop(kernel.kept))
        whole = operands[-1].reshape(*kernel.product.batch, kernel.product.m, kernel.product.n)
        assert np.may_share_memory(whole, operands[-1]), "results lie row-major"
        out = whole[(*counted, down, across)]
        epilogue = _part(kernel.epilogue, band)
    matrices = (lhs[(*counted, down)], rhs[(*counted, slice(None), across)])
    taken = tuple(map(_as, own, product.scratch_dims()))
    return (
        product_at(product, KernelArrays(matrices, (out,), taken), factors, arrays.operands),
        CPU_KERNELS.bind(epilogue, KernelArrays(tuple(operands), tuple(results), scratch)),
    )


def _as(memory: NDArray, dims: tuple[int, ...]) -> NDArray:
    """Its first elements, as an array of these sizes."""
    return memory.reshape(-1)[: math.prod(dims)].reshape(dims)


def _part(epilogue: Epilogue, band: Box) -> Epilogue:
    for d, span in enumerate(band):
        if isinstance(epilogue, LoopKernel):
            epilogue = loop_part(epilogue, d, span)
        elif d in epilogue.fusion.counted:
            epilogue = rows_part(epilogue, d, span)
    return epilogue


def _at(epilogue: Epilogue, band: Box, product: int) -> Epilogue:
    """The part for a band whose product, operand ``product``, lies by itself."""
    sizes = tuple(span.size for span in band)

    def moved(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
        return tuple(
            replace(leaf, view=StridedView.dense(ArrayShape(leaf.view.element_type, sizes)))
            if isinstance(leaf, OperandElements) and leaf.operand == product
            else leaf
            for leaf in leaves
        )

    part = _part(epilogue, band)
    if isinstance(part, LoopKernel):
        return replace(part, leaves=moved(part.leaves))
    return replace(
        part, leaves=tuple(replace(each, elements=moved(each.elements)) for each in part.leaves)
    )
