"""Record of a convolution and its epilogue, for a GPU's library that computes both in one call."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from runtime.program.records.convolution import (
    GroupConvolutionKernel,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
)
from runtime.program.records.loop import LoopKernel
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ConvolutionEpilogueKernel(Kernel):
    """Convolution, and a loop that reads its elements, each at its own index.

    The kernel's operands are those of ``epilogue``, without the last one, which is the convolution, and then both
    operands of ``convolution``, which are views of two of the others. result: view of the convolution, in the dimension
    order of ``convolution``, in a dense array whose sizes are those of ``epilogue``. scratch: views of the scratch
    arrays of ``convolution``, each dense in some order. No memory is reserved for these; a CPU allocates its own.
    """

    convolution: PanelConvolutionKernel | GroupConvolutionKernel | PhaseConvolutionKernel
    epilogue: LoopKernel
    result: StridedView
    scratch: tuple[StridedView, ...]
