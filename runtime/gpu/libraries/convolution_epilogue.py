"""Convolutions with epilogues: one call of cuDNN, or the convolution and then a PTX kernel.

max(conv(x, w) + z + b, 0)     one call, if all arrays have one type, and features last
tanh(conv(x, w))               the convolution, and a PTX kernel that reads it
"""

from __future__ import annotations

from dataclasses import replace

from runtime.gpu.codegen.launch import KernelSource
from runtime.gpu.libraries.call import LibraryCall
from runtime.gpu.libraries.convolution import (
    ALIGNED,
    Arrays,
    add_convolution,
    library_convolution,
    operands_of,
    suits,
)
from runtime.gpu.libraries.convolution_call import (
    ConvolutionEpilogue,
    Direction,
    LibraryConvolution,
)
from runtime.gpu.libraries.convolution_ways import ways
from runtime.gpu.libraries.product_epilogue import is_plain, leaf_array
from runtime.gpu.libraries.sequence import SequenceArray, SequenceBuilder, in_sequence
from runtime.gpu.views import DeviceView
from runtime.gpu.work import ConvolutionWork, KernelArraysOnDevice, KernelWork
from runtime.program.convolution_epilogue import convolution_epilogue, is_computed
from runtime.program.records.convolution_epilogue import ConvolutionEpilogueKernel
from runtime.program.records.loop import LoopKernel
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ConvolutionEpilogueCall(LibraryCall):
    """Call of cuDNN that computes ``convolution`` with its epilogue.

    Its arrays are both operands, the addend and the bias, if the epilogue has them, the operands of ``loop`` but its
    last one, and the result. ``loop``, by ``launches``, computes the epilogue of a convolution that is in the result's
    memory, if cuDNN has no kernel for both.
    """

    convolution: LibraryConvolution
    loop: LoopKernel
    launches: tuple[KernelSource, ...]
    can_be_captured = True

    def on(self, arrays: tuple[DeviceView, ...]) -> ConvolutionWork:
        first, second, *others, result = arrays
        epilogue = self.convolution.epilogue
        assert epilogue is not None, "planned with it"
        addend = others.pop(0) if epilogue.addend else None
        bias = others.pop(0) if epilogue.bias else None
        read = KernelArraysOnDevice((*others, result), (result,))
        otherwise = KernelWork(self.loop, self.launches, read)
        return ConvolutionWork(self.convolution, first, second, result, addend, bias, otherwise)


@in_sequence(ConvolutionEpilogueKernel)
def convolution_with_epilogue(kernel: ConvolutionEpilogueKernel, builder: SequenceBuilder) -> bool:
    """Add the call of cuDNN that computes ``kernel``, or else the stages of the convolution and of the epilogue.

    Returns False as ``add_convolution`` does.
    """
    if not builder.options.cudnn:
        return False
    if builder.options.epilogues and _add_call(kernel, builder):
        return True
    *operands, image, filter_ = builder.operands
    made = (result,) = builder.results
    if not _may_hold(result.view, kernel):
        made = (builder.room(kernel.result.element_type, kernel.epilogue.dims),)
    arrays = (image, filter_, _in_order(kernel, made[0]))
    if not add_convolution(kernel.convolution, arrays, builder):
        return False
    builder.kernel(kernel.epilogue, (*operands, *made), builder.results)
    return True


def _may_hold(view: StridedView, kernel: ConvolutionEpilogueKernel) -> bool:
    """Return whether the memory of the result ``view`` may hold the convolution before its epilogue is computed."""
    return view.is_packed and view.element_type is kernel.result.element_type


def _in_order(kernel: ConvolutionEpilogueKernel, array: SequenceArray) -> SequenceArray:
    """Return the packed ``array``, which has the sizes of the epilogue, in the dimension order of the convolution."""
    return replace(array, view=replace(kernel.result, offset=array.view.offset))


def _add_call(kernel: ConvolutionEpilogueKernel, builder: SequenceBuilder) -> bool:
    """Add the call of cuDNN that computes ``kernel``. Returns False if there is none."""
    *operands, image, filter_ = builder.operands
    (result,), loop = builder.results, kernel.epilogue
    epilogue = convolution_epilogue(loop.program, loop.leaves, len(operands), len(loop.dims) - 1)
    if epilogue is None or not is_plain(loop) or not _may_hold(result.view, kernel):
        return False
    arrays: Arrays = (image, filter_, _in_order(kernel, result))
    way = next(ways(kernel.convolution, [array.view for array in arrays]))
    library = library_convolution(kernel.convolution, way)
    kinds = (image.view.element_type, filter_.view.element_type)
    if (
        library is None
        or library.direction is not Direction.FORWARD
        or not library.channels_last
        or not suits(library, way, "output")
        or not is_computed(kinds, result.view.element_type, tf32=library.tf32)
    ):
        return False
    read = [
        leaf_array(loop.leaves[n], builder)
        for n in (epilogue.addend, epilogue.bias)
        if n is not None
    ]
    launches = builder.launches(loop, (*operands, result), builder.results)
    if launches is None or any(array.view.offset % ALIGNED for array in read):
        return False
    with_epilogue = replace(
        library,
        epilogue=ConvolutionEpilogue(
            epilogue.addend is not None, epilogue.bias is not None, epilogue.relu
        ),
    )
    call = ConvolutionEpilogueCall(with_epilogue, loop, launches)
    taken = operands_of(library, way, arrays, builder)
    builder.call(call, *taken, *read, *operands, replace(result, view=way.arrays["output"].view))
    return True
