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
from runtime.gpu.libraries.convolution_ways import ConvolutionKernel, ways
from runtime.gpu.libraries.product_epilogue import is_plain, leaf_array
from runtime.gpu.libraries.sequence import SequenceArray, SequenceBuilder, in_sequence
from runtime.gpu.views import DeviceView
from runtime.gpu.work import ConvolutionWork, KernelArraysOnDevice, KernelWork
from runtime.program.convolution_epilogue import convolution_epilogue, is_computed
from runtime.program.gemm_epilogue import Activation
from runtime.program.records.convolution_call import ConvolutionCallKernel, EpilogueLoop
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


@in_sequence(ConvolutionCallKernel)
def convolution_with_epilogue(kernel: ConvolutionCallKernel, builder: SequenceBuilder) -> bool:
    """Add the call of cuDNN that computes ``kernel``, or else the stages of the convolution and of the epilogue.

    Returns False as ``add_convolution`` does.
    """
    *operands, x, w = builder.operands
    (result,), epilogue = builder.results, kernel.epilogue
    if epilogue is None:
        return add_convolution(kernel.convolution, (x, w, result), builder)
    if not builder.options.cudnn:
        return False
    if builder.options.epilogues and _add_call(kernel.convolution, epilogue, builder):
        return True
    made = result
    if not _may_hold(result.view, epilogue):
        made = builder.room(epilogue.view.element_type, epilogue.loop.dims)
    if not add_convolution(kernel.convolution, (x, w, _in_order(epilogue, made)), builder):
        return False
    builder.kernel(epilogue.loop, (*operands, made), (result,))
    return True


def _may_hold(view: StridedView, epilogue: EpilogueLoop) -> bool:
    """Return whether the memory of the result ``view`` may hold the convolution before its epilogue is computed."""
    return view.is_packed and view.element_type is epilogue.view.element_type


def _in_order(epilogue: EpilogueLoop, array: SequenceArray) -> SequenceArray:
    """Return the packed ``array``, which has the sizes of the epilogue, in the dimension order of the convolution."""
    return replace(array, view=replace(epilogue.view, offset=array.view.offset))


def _add_call(kernel: ConvolutionKernel, epilogue: EpilogueLoop, builder: SequenceBuilder) -> bool:
    """Add the call of cuDNN that computes ``kernel`` and ``epilogue``. Returns False if there is none."""
    *operands, x, w = builder.operands
    (result,), loop = builder.results, epilogue.loop
    found = convolution_epilogue(loop.program, loop.leaves, len(operands), len(loop.dims) - 1)
    if found is None or not is_plain(loop) or not _may_hold(result.view, epilogue):
        return False
    arrays: Arrays = (x, w, _in_order(epilogue, result))
    way = next(ways(kernel, [array.view for array in arrays]))
    library = library_convolution(kernel, way)
    kinds = tuple(array.view.element_type for array in arrays)
    if (
        library is None
        or library.direction is not Direction.FORWARD
        or not library.channels_last
        or not suits(library, way, "output")
        or not is_computed(kinds, kinds[2], tf32=library.tf32)
    ):
        return False
    read = [
        leaf_array(loop.leaves[n], builder) for n in (found.addend, found.bias) if n is not None
    ]
    launches = builder.launches(loop, (*operands, result), (result,))
    if launches is None or any(array.view.offset % ALIGNED for array in read):
        return False
    own = ConvolutionEpilogue(
        found.addend is not None, found.bias is not None, found.activation is Activation.RELU
    )
    call = ConvolutionEpilogueCall(replace(library, epilogue=own), loop, launches)
    taken = operands_of(library, way, arrays, builder)
    made = replace(result, view=way.arrays["output"].view)
    builder.call(call, *taken, *read, *operands, made)
    return True
