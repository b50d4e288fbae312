"""Lowering of fusions. Each becomes one kernel, whose plan ``runtime.fusion`` makes."""

from __future__ import annotations

from runtime.emit import dot, gather_scatter
from runtime.emit.fused_kernel import kernel_of, operand_leaves
from runtime.emit.product_fusion import (
    emit_product,
    emit_sliced,
    fused_product,
    is_one_call,
    product_layouts,
    product_scratch,
    product_view,
)
from runtime.emit.reference import parentless
from runtime.fusion.indexed.index_fusion import IndexFusion
from runtime.fusion.loop_fusion import LoopFusion
from runtime.fusion.plan_cache import cached_plan
from runtime.fusion.products.convolution_fusion import ConvolutionFusion
from runtime.fusion.products.library_epilogues import overwritten_by_library
from runtime.fusion.products.product_fusion import ProductFusion, SlicedProduct
from runtime.fusion.view_path import through
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays, Order, Views
from runtime.program.records.attention import AttentionKernel
from runtime.program.thunks import KernelThunk, Thunk
from spmd.analysis.fusion_emitter import is_attention
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape


def emit_fusion(fusion: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of the kernel that computes ``fusion``."""
    if is_attention(fusion):
        attention = AttentionKernel(parentless(fusion))
        return KernelThunk(fusion.name, attention, arrays.operands, arrays.results)
    plan = cached_plan(fusion).plan
    if isinstance(plan, ProductFusion):
        return emit_product(fusion, plan, arrays, device)
    if isinstance(plan, SlicedProduct):
        return emit_sliced(fusion, plan, arrays, device)
    if isinstance(plan, ConvolutionFusion):
        from runtime.emit.convolution import convolution_fusion  # loads all kinds of convolutions

        return convolution_fusion.emit_convolution_fusion(fusion, plan, arrays)
    if isinstance(plan, IndexFusion):
        return gather_scatter.emit_indexed(fusion, fusion.to_apply.root, plan, arrays, device)
    kernel = kernel_of(plan, arrays.operands)
    return KernelThunk(fusion.name, kernel, arrays.operands, arrays.results, arrays.scratch)


def layouts(fusion: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Return the operands that must be copied first, as {operand: dimension order, slowest first}.

    An operand is copied to row-major order if the kernel cannot read it by strides, for example through a reshape of a
    transposed array, and a factor of a product or convolution to the order that their kernels require.
    """
    if is_attention(fusion):
        return {}
    plan = cached_plan(fusion).plan
    orders: dict[int, tuple[int, ...]] = {}
    if isinstance(plan, SlicedProduct):
        return product_layouts(fusion, plan.factors, views)
    if isinstance(plan, ProductFusion):
        orders = product_layouts(fusion, plan.factors, views)
        views, plan = (*views, product_view(fusion)), plan.epilogue
    if isinstance(plan, ConvolutionFusion):
        from runtime.emit.convolution import convolution_fusion

        orders = convolution_fusion.convolution_layouts(fusion, plan, views)
        views, plan = (*views, convolution_fusion.convolution_view(fusion)), plan.epilogue
    unread = {
        leaf.number
        for leaf in operand_leaves(plan)
        if through(leaf.path, views[leaf.number]) is None
    }
    if isinstance(plan, LoopFusion):
        results = fusion.to_apply.root.elements
        unread.update(
            number for n, number in plan.updates if views[number].reshape(results[n].dims) is None
        )
    row_major = {number: tuple(range(len(views[number].dims))) for number in sorted(unread)}
    return {**orders, **row_major}


def in_place(fusion: HloInstruction) -> tuple[tuple[int, int], ...]:
    """Return pairs (result, operand): the result may be the memory of the operand."""
    if is_attention(fusion):
        return ()
    plan = cached_plan(fusion).plan
    if isinstance(plan, ProductFusion) and is_one_call(fusion, plan):
        return overwritten_by_library(plan)
    return plan.overwrites


def writes(fusion: HloInstruction, order: Order) -> bool:
    """Return whether the result can be written in dimension order ``order``.

    Only a fusion that is a product of slices can do so, if a dot can.
    """
    if is_attention(fusion):
        return False
    plan = cached_plan(fusion).plan
    return isinstance(plan, SlicedProduct) and dot.writes(fused_product(fusion), order)


def scratch(fusion: HloInstruction, views: Views) -> tuple[ArrayShape, ...]:
    """Return the shapes of the scratch arrays: those of the product, then those of the rows.

    A product or convolution for a library has none. A CPU that runs it allocates its own.
    """
    if is_attention(fusion):
        return ()
    plan = cached_plan(fusion).plan
    if isinstance(plan, ConvolutionFusion):
        return ()
    if isinstance(plan, SlicedProduct):
        return product_scratch(fusion, plan, views)
    if isinstance(plan, IndexFusion):
        return gather_scatter.scratch(fusion.to_apply.root, views)
    if isinstance(plan, ProductFusion) and is_one_call(fusion, plan):
        return ()
    own: tuple[ArrayShape, ...] = ()
    if isinstance(plan, ProductFusion):
        own, plan = product_scratch(fusion, plan, views), plan.epilogue
    return own if isinstance(plan, LoopFusion) else (*own, *plan.fusion.scratch)


LOWERINGS.add(
    Opcode.FUSION, Lowering(emit_fusion, in_place, layouts=layouts, writes=writes, scratch=scratch)
)
