"""Emission of convolution fusions: a convolution and a loop that reads it."""

from __future__ import annotations

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.emit.convolution import convolution
from runtime.emit.fused_kernel import kernel_of
from runtime.fusion.products.convolution_fusion import ConvolutionFusion
from runtime.lowering import Device, OpArrays, Order, Views
from runtime.program.records.convolution import (
    GroupConvolutionKernel,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
)
from runtime.program.records.convolution_epilogue import ConvolutionEpilogueKernel
from runtime.program.records.loop import LoopKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk, Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape


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
    own = convolution.layouts(fused_convolution(fusion), tuple(views[n] for n in plan.operands))
    return {plan.operands[n]: order for n, order in own.items()}


def emit_convolution_fusion(
    fusion: HloInstruction, plan: ConvolutionFusion, arrays: OpArrays, device: Device
) -> Thunk:
    """Return the thunk of a convolution with an epilogue."""
    instruction = fused_convolution(fusion)
    operands = tuple(arrays.operands[n] for n in plan.operands)
    scratch = convolution.scratch(instruction, tuple(array.view for array in operands))
    made = _somewhere(instruction.array_shape)
    alone = convolution.emit_convolution(
        instruction, OpArrays(operands, (made,), tuple(map(_somewhere, scratch))), device
    )
    assert isinstance(alone, KernelThunk), "a library computes it"
    kernel = alone.kernel
    assert isinstance(
        kernel, PanelConvolutionKernel | GroupConvolutionKernel | PhaseConvolutionKernel
    )
    epilogue = kernel_of(plan.epilogue, (*arrays.operands, made))
    assert isinstance(epilogue, LoopKernel), "the epilogue is one loop"
    views = tuple(array.view for array in alone.scratch)
    both = ConvolutionEpilogueKernel(kernel, epilogue, alone.results[0].view, views)
    return KernelThunk(fusion.name, both, (*arrays.operands, *alone.operands), arrays.results)


def _somewhere(shape: ArrayShape) -> ArrayView:
    """Return a dense array of ``shape`` at an arbitrary address, which stands for an array without a buffer."""
    return ArrayView(BufferSlice(0, 0, shape.byte_size), StridedView.dense(shape))
