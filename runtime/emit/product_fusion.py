"""Product fusions: a dot as ``runtime/emit/dot.py`` has it, and the loop or the rows that read it, as one kernel."""

from __future__ import annotations

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.emit import dot
from runtime.emit.fused_kernel import kernel_of
from runtime.fusion.product_fusion import ProductFusion
from runtime.kernels.dot import DotKernel
from runtime.kernels.loop import LoopKernel
from runtime.kernels.parts import Span
from runtime.kernels.product_epilogue import ProductEpilogueKernel
from runtime.kernels.rows import RowKernel
from runtime.lowering import Device, Order, StepArrays, Views
from runtime.strides import StridedView
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape


def fused_product(fusion: HloInstruction) -> HloInstruction:
    return next(x for x in fusion.to_apply.instructions if x.opcode is Opcode.DOT)


def product_view(fusion: HloInstruction) -> StridedView:
    """The whole product, as if it were an operand of what is computed of it."""
    return StridedView.dense(fused_product(fusion).array_shape)


def product_layouts(fusion: HloInstruction, plan: ProductFusion, views: Views) -> dict[int, Order]:
    """As the dot alone wants its operands."""
    own = dot.layouts(fused_product(fusion), (views[plan.lhs], views[plan.rhs]))
    numbers = (plan.lhs, plan.rhs)
    return {numbers[n]: order for n, order in own.items()}


def product_scratch(
    fusion: HloInstruction, plan: ProductFusion, views: Views
) -> tuple[ArrayShape, ...]:
    """What the dot needs for itself, and the band that it writes where the product is no result."""
    product = fused_product(fusion)
    own = dot.scratch(product, (views[plan.lhs], views[plan.rhs]))
    if plan.kept is not None:
        return own
    return (*own, ArrayShape(product.array_shape.element_type, plan.band))


def emit_product(
    fusion: HloInstruction, plan: ProductFusion, arrays: StepArrays, device: Device
) -> Thunk:
    product = fused_product(fusion)
    whole = _somewhere(product.array_shape)
    operands = (arrays.operands[plan.lhs], arrays.operands[plan.rhs])
    alone = dot.emit_dot(product, StepArrays(operands, (whole,)), device)
    assert isinstance(alone, KernelThunk), "the plan has asked for that"
    assert isinstance(alone.kernel, DotKernel)
    epilogue = kernel_of(plan.epilogue, (*arrays.operands, whole))
    assert isinstance(epilogue, LoopKernel | RowKernel)
    kernel = ProductEpilogueKernel(
        alone.kernel,
        plan.lhs,
        plan.rhs,
        epilogue,
        plan.kept,
        plan.dims,
        plan.batch,
        plan.rows,
        plan.band,
        tuple(Span(0, size) for size in plan.dims),
    )
    inputs = list(arrays.operands)
    inputs[plan.lhs], inputs[plan.rhs] = (
        alone.operands
    )  # what else reads them asks for the first element alone
    return KernelThunk(fusion.name, kernel, tuple(inputs), arrays.results, arrays.scratch)


def _somewhere(shape: ArrayShape) -> ArrayView:
    """An array that lies dense, wherever."""
    return ArrayView(BufferSlice(0, 0, shape.byte_size), StridedView.dense(shape))
