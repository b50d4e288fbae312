"""Emission of product fusions: a dot, possibly of slices that are read in place, and a loop or row epilogue."""

from __future__ import annotations

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.emit import dot
from runtime.emit.fused_kernel import kernel_of, starts_of
from runtime.fusion.emitters import GEMM
from runtime.fusion.loop_fusion import LoopFusion
from runtime.fusion.products.factors import Factors
from runtime.fusion.products.product_fusion import ProductFusion, SlicedProduct
from runtime.fusion.view_path import shifts
from runtime.lowering import Device, OpArrays, Order, Views
from runtime.program.blocks import Span
from runtime.program.dot_matrices import unread_operands
from runtime.program.records.dot import DotKernel, FactorOperands, SlicedProductKernel
from runtime.program.records.loop import LoopKernel
from runtime.program.records.product_epilogue import ProductEpilogueKernel, product_of_block
from runtime.program.records.rows import RowKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk, Thunk
from spmd.analysis.fusion_emitter import stated_emitter
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape


def fused_product(fusion: HloInstruction) -> HloInstruction:
    """Return the dot in the computation of ``fusion``."""
    return next(x for x in fusion.to_apply.instructions if x.opcode is Opcode.DOT)


def product_view(fusion: HloInstruction) -> StridedView:
    """Return the dense view of the entire product, which is an input of the epilogue."""
    return StridedView.dense(fused_product(fusion).array_shape)


def product_layouts(fusion: HloInstruction, factors: Factors, views: Views) -> dict[int, Order]:
    """Return the operands of ``fusion`` that must be copied so that BLAS can read the factors of the dot.

    The values are dimension orders, slowest first. An array of which a factor is a slice is copied to row-major order.
    """
    unread = unread_operands(fused_product(fusion), _seen(fusion, factors, views))
    orders: dict[int, Order] = {}
    for n, factor in enumerate(factors.both):
        view = views[factor.number]
        if factor.path and (n in unread or factor.seen(view) is None):
            orders[factor.number] = tuple(range(len(view.dims)))
        elif n in unread:
            orders[factor.number] = unread[n]
    return orders


def _seen(fusion: HloInstruction, factors: Factors, views: Views) -> Views:
    """Return the views of the operands of the dot, given the ``views`` of the operands of ``fusion``.

    If strides cannot describe a view, a dense one is returned, since the operand is then copied first.
    """
    product = fused_product(fusion)
    return tuple(
        factor.seen(views[factor.number]) or StridedView.dense(operand.array_shape)
        for factor, operand in zip(factors.both, product.operands, strict=True)
    )


def product_scratch(
    fusion: HloInstruction, plan: ProductFusion | SlicedProduct, views: Views
) -> tuple[ArrayShape, ...]:
    """Return the shapes of the scratch of a block's product, and of the block unless the product is a result.

    The product of a SlicedProduct is not computed in blocks.
    """
    product, seen = fused_product(fusion), _seen(fusion, plan.factors, views)
    if isinstance(plan, SlicedProduct):
        return dot.scratch(product, seen)
    kernel = dot.product_kernel(product, seen)
    assert kernel is not None, "the plan has asked for that"
    own = dot.scratch_of(product_of_block(kernel, plan.block[plan.batch :], plan.rows))
    if plan.product_result is not None:
        return own
    return (*own, ArrayShape(product.array_shape.element_type, plan.block))


def is_one_call(fusion: HloInstruction, plan: ProductFusion) -> bool:
    """Return whether a GPU's library computes ``fusion`` in one call, as its backend config states."""
    return isinstance(plan.epilogue, LoopFusion) and stated_emitter(fusion) == GEMM


def emit_product(
    fusion: HloInstruction, plan: ProductFusion, arrays: OpArrays, device: Device
) -> Thunk:
    """Return the thunk of a product with an epilogue."""
    product = fused_product(fusion)
    product_array = _somewhere(product.array_shape)
    factors, inputs, product_kernel, _ = _placed(
        fusion, plan.factors, arrays, product_array, device
    )
    epilogue = kernel_of(plan.epilogue, (*arrays.operands, product_array))
    assert isinstance(epilogue, LoopKernel | RowKernel)
    kernel = ProductEpilogueKernel(
        product_kernel,
        factors,
        epilogue,
        plan.product_result,
        plan.dims,
        plan.batch,
        plan.rows,
        plan.block,
        tuple(Span(0, size) for size in plan.dims),
    )
    return KernelThunk(fusion.name, kernel, inputs, arrays.results, arrays.scratch)


def emit_sliced(
    fusion: HloInstruction, plan: SlicedProduct, arrays: OpArrays, device: Device
) -> Thunk:
    """Return the thunk of a product of slices without an epilogue."""
    factors, inputs, product_kernel, results = _placed(
        fusion, plan.factors, arrays, arrays.results[0], device
    )
    kernel = SlicedProductKernel(product_kernel, factors)
    return KernelThunk(fusion.name, kernel, inputs, results, arrays.scratch)


def _placed(
    fusion: HloInstruction, factors: Factors, arrays: OpArrays, result: ArrayView, device: Device
) -> tuple[FactorOperands, tuple[ArrayView, ...], DotKernel, tuple[ArrayView, ...]]:
    """Return (factors, operands of the fusion, kernel of the dot without its epilogue, results of that kernel).

    The factors among the operands, and the results, are returned as matrices. result: array of the product.
    """
    views = tuple(array.view for array in arrays.operands)
    numbers = tuple(factor.number for factor in factors.both)
    operands = tuple(
        ArrayView(arrays.operands[n].slice, view)
        for n, view in zip(numbers, _seen(fusion, factors, views), strict=True)
    )
    alone = dot.emit_dot(fused_product(fusion), OpArrays(operands, (result,)), device)
    assert isinstance(alone, KernelThunk), "the plan has asked for that"
    assert isinstance(alone.kernel, DotKernel)
    lhs, rhs = (shifts(factor.path, views[factor.number]) for factor in factors.both)
    starts = starts_of(factors.starts, arrays.operands)
    inputs = list(arrays.operands)
    for n, matrix in zip(numbers, alone.operands, strict=True):
        inputs[n] = matrix  # other readers of the operand use only the address of its first element
    factor_operands = FactorOperands(factors.lhs.number, factors.rhs.number, (lhs, rhs), starts)
    return factor_operands, tuple(inputs), alone.kernel, alone.results


def _somewhere(shape: ArrayShape) -> ArrayView:
    """Return a dense array of ``shape`` at an arbitrary address, which stands for a product without a buffer."""
    return ArrayView(BufferSlice(0, 0, shape.byte_size), StridedView.dense(shape))
