"""Fusions: one kernel each, made by the emitter that ``runtime.fusion.emitters`` names."""

from __future__ import annotations

from runtime.emit import dot
from runtime.emit.fused_kernel import kernel_of, operand_leaves
from runtime.emit.product_fusion import (
    emit_product,
    emit_sliced,
    fused_product,
    product_layouts,
    product_scratch,
    product_view,
)
from runtime.fusion.loop_fusion import LoopFusion
from runtime.fusion.plan_cache import cached_plan
from runtime.fusion.products.product_fusion import ProductFusion, SlicedProduct
from runtime.fusion.view_path import through
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays, Order, Views
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape


def emit_fusion(fusion: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    plan = cached_plan(fusion).plan
    if isinstance(plan, ProductFusion):
        return emit_product(fusion, plan, arrays, device)
    if isinstance(plan, SlicedProduct):
        return emit_sliced(fusion, plan, arrays, device)
    kernel = kernel_of(plan, arrays.operands)
    return KernelThunk(fusion.name, kernel, arrays.operands, arrays.results, arrays.scratch)


def layouts(fusion: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Return the operands to copy to row major: no strides can read them (a reshape of a transposed array)."""
    plan = cached_plan(fusion).plan
    orders: dict[int, tuple[int, ...]] = {}
    if isinstance(plan, SlicedProduct):
        return product_layouts(fusion, plan.factors, views)
    if isinstance(plan, ProductFusion):
        orders = product_layouts(fusion, plan.factors, views)
        views, plan = (*views, product_view(fusion)), plan.epilogue
    unread = {
        leaf.number
        for leaf in operand_leaves(plan)
        if through(leaf.path, views[leaf.number]) is None
    }
    if isinstance(plan, LoopFusion):
        results = fused_results(fusion)
        unread.update(
            number for n, number in plan.updates if views[number].reshape(results[n].dims) is None
        )
    row_major = {number: tuple(range(len(views[number].dims))) for number in sorted(unread)}
    return {**orders, **row_major}


def fused_results(fusion: HloInstruction) -> tuple[HloInstruction, ...]:
    """Return the results of the fused computation, in order."""
    root = fusion.to_apply.root
    return root.operands if root.opcode is Opcode.TUPLE else (root,)


def in_place(fusion: HloInstruction) -> tuple[tuple[int, int], ...]:
    return cached_plan(fusion).plan.overwrites


def writes(fusion: HloInstruction, order: Order) -> bool:
    """Return whether the fusion is a single product that a dot could write in ``order``."""
    plan = cached_plan(fusion).plan
    return isinstance(plan, SlicedProduct) and dot.writes(fused_product(fusion), order)


def scratch(fusion: HloInstruction, views: Views) -> tuple[ArrayShape, ...]:
    plan = cached_plan(fusion).plan
    if isinstance(plan, SlicedProduct):
        return product_scratch(fusion, plan, views)
    own: tuple[ArrayShape, ...] = ()
    if isinstance(plan, ProductFusion):
        own, plan = product_scratch(fusion, plan, views), plan.epilogue
    return own if isinstance(plan, LoopFusion) else (*own, *plan.fusion.scratch)


LOWERINGS.add(
    Opcode.FUSION, Lowering(emit_fusion, in_place, layouts=layouts, writes=writes, scratch=scratch)
)
