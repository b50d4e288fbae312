"""Products with epilogues, block by block: the epilogue reads a block of the product while it is in cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from collectives.communicator.actions.shared_buffers import private_array
from runtime.cpu.kernels.gemm.dot import bind_dot
from runtime.cpu.kernels.native_call import NOTHING, in_order
from runtime.program.blocks import loop_part, rows_part
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.dot import DotKernel, FactorOperands
from runtime.program.records.loop import LoopKernel, OperandElements
from runtime.program.records.product_epilogue import (
    Box,
    Epilogue,
    ProductEpilogueKernel,
    product_of_block,
)
from runtime.program.records.rows import RowLeaf
from runtime.program.strides import StridedView
from spmd.literal import NDArray
from spmd.shape import ArrayShape

Leaf = TypeVar("Leaf", bound=RowLeaf)


@CPU_KERNELS.binds(ProductEpilogueKernel)
def bind_product_epilogue(kernel: ProductEpilogueKernel, arrays: KernelArrays) -> Action:
    """Bind the product and the epilogue of each block, one after the other.

    Programs for a GPU reserve no scratch for such kernels, so it is allocated here.
    """
    if 0 in kernel.dims:
        return NOTHING
    if not arrays.scratch:
        arrays = replace(arrays, scratch=_scratch(kernel))
    return in_order(
        *(action for block in kernel.blocks for action in _row_block(kernel, arrays, block))
    )


def _scratch(kernel: ProductEpilogueKernel) -> tuple[NDArray, ...]:
    """Allocate the scratch of the product of a block, and a block unless the product is a result."""
    product = product_of_block(kernel.product, kernel.block[kernel.batch :], kernel.rows)
    own = [private_array(dims, product.compute.numpy) for dims in product.scratch_dims()]
    if kernel.product_result is None:
        own.append(private_array(kernel.block, product.result.numpy))
    return tuple(own)


def _row_block(
    kernel: ProductEpilogueKernel, arrays: KernelArrays, block: Box
) -> tuple[Action, Action]:
    """Bind the product and the epilogue of ``block``, whose product goes to scratch or to a result of the kernel."""
    product, (rows, columns) = kernel.product_of(block), kernel.lines(block)
    counted = tuple(slice(span.start, span.stop) for span in block[: kernel.batch])
    down, across = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    operands, results = list(arrays.operands), list(arrays.results)
    factors = kernel.factors
    lhs, rhs = operands[factors.lhs], operands[factors.rhs]
    spare = len(kernel.product.scratch_dims())
    own, scratch = arrays.scratch[:spare], arrays.scratch[spare:]
    if kernel.product_result is None:
        operands.append(scratch[0])
        scratch = scratch[1:]
        out = _as(operands[-1], (*product.batch, product.m, product.n))
        epilogue = _at(kernel.epilogue, block, len(operands) - 1)
    else:
        operands.append(results.pop(kernel.product_result))
        full = operands[-1].reshape(*kernel.product.batch, kernel.product.m, kernel.product.n)
        assert np.may_share_memory(full, operands[-1]), "results lie row-major"
        out = full[(*counted, down, across)]
        epilogue = _part(kernel.epilogue, block)
    matrices = (lhs[(*counted, down)], rhs[(*counted, slice(None), across)])
    taken = tuple(map(_as, own, product.scratch_dims()))
    return (
        _product(product, KernelArrays(matrices, (out,), taken), factors, arrays.operands),
        CPU_KERNELS.bind(epilogue, KernelArrays(tuple(operands), tuple(results), scratch)),
    )


def _product(
    product: DotKernel, arrays: KernelArrays, factors: FactorOperands, operands: Sequence[NDArray]
) -> Action:
    """Bind ``product`` of ``arrays``. Run-time offsets are computed from ``operands``, those of the kernel."""
    if not any(factors.shifts):
        return bind_dot(product, arrays)
    from runtime.cpu.kernels.gemm.sliced_product import product_at  # few products read slices

    return product_at(product, arrays, factors, operands)


def _as(memory: NDArray, dims: tuple[int, ...]) -> NDArray:
    """Return the first elements of ``memory`` as a row-major array of sizes ``dims``."""
    return memory.reshape(-1)[: math.prod(dims)].reshape(dims)


def _part(epilogue: Epilogue, block: Box) -> Epilogue:
    """Return the part of ``epilogue`` that computes ``block``, on the same arrays."""
    for d, span in enumerate(block):
        if isinstance(epilogue, LoopKernel):
            epilogue = loop_part(epilogue, d, span)
        elif d in epilogue.fusion.counted:
            epilogue = rows_part(epilogue, d, span)
    return epilogue


def _at(epilogue: Epilogue, block: Box, product: int) -> Epilogue:
    """Return the epilogue of a block whose product, operand number ``product``, is a dense array of that size."""
    sizes = tuple(span.size for span in block)

    def moved(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
        """Return ``leaves`` with those of the product reading the block's array."""
        return tuple(
            replace(leaf, view=StridedView.dense(ArrayShape(leaf.view.element_type, sizes)))
            if isinstance(leaf, OperandElements) and leaf.operand == product
            else leaf
            for leaf in leaves
        )

    part = _part(epilogue, block)
    if isinstance(part, LoopKernel):
        return replace(part, leaves=moved(part.leaves))
    return replace(
        part, leaves=tuple(replace(each, elements=moved(each.elements)) for each in part.leaves)
    )
