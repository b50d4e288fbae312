"""Emission of convolution fusions: a convolution and a loop that reads it."""

from __future__ import annotations

from dataclasses import replace

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.emit.convolution.convolution import convolution_call, layouts
from runtime.emit.fused_kernel import kernel_of
from runtime.fusion.products.convolution_fusion import ConvolutionFusion
from runtime.lowering import OpArrays, Order, Views
from runtime.program.records.convolution_call import EpilogueLoop
from runtime.program.records.loop import LoopKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode


def fused_convolution(fusion: HloInstruction) -> HloInstruction:
    """Return the convolution in the computation of ``fusion``."""
    return next(x for x in fusion.to_apply.instructions if x.opcode is Opcode.CONVOLUTION)


def convolution_view(fusion: HloInstruction) -> StridedView:
    """Return the dense view of the convolution, which is an input of the epilogue."""
    return StridedView.dense(fused_convolution(fusion).array_shape)


def convolution_layouts(
    fusion: HloInstruction, plan: ConvolutionFusion, views: Views
) -> dict[int, Order]:
    """Return the operands of ``fusion`` that the convolution cannot read in place, with the order of each copy."""
    own = layouts(fused_convolution(fusion), tuple(views[n] for n in plan.operands))
    return {plan.operands[n]: order for n, order in own.items()}


def emit_convolution_fusion(
    fusion: HloInstruction, plan: ConvolutionFusion, arrays: OpArrays
) -> Thunk:
    """Return the thunk of a convolution with an epilogue."""
    shape = fused_convolution(fusion).array_shape
    somewhere = BufferSlice(0, 0, shape.byte_size)  # the convolution has no buffer
    made = ArrayView(somewhere, StridedView.dense(shape))
    operands = [arrays.operands[n] for n in plan.operands]
    kernel, own, result = convolution_call(fused_convolution(fusion), operands, made)
    loop = kernel_of(plan.epilogue, (*arrays.operands, made))
    assert isinstance(loop, LoopKernel), "the epilogue is one loop"
    with_epilogue = replace(kernel, epilogue=EpilogueLoop(loop, result.view))
    return KernelThunk(fusion.name, with_epilogue, (*arrays.operands, *own), arrays.results)
