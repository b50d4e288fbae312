"""Record of a convolution that a GPU's library computes in one call, with an epilogue or without."""

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
class EpilogueLoop:
    """Loop that reads the elements of a convolution, each at its own index.

    The last operand of ``loop`` is the convolution: a dense array of the loop's sizes. view: that array in the
    dimension order of the convolution.
    """

    loop: LoopKernel
    view: StridedView


@dataclass(frozen=True)
class ConvolutionCallKernel(Kernel):
    """Convolution, and ``epilogue`` if that is not None, of operands that lie as a GPU's library takes them.

    The operands are those of the epilogue, without the convolution, and then x and w of ``convolution``, which may be
    views of the others. A CPU, which needs memory that the program does not reserve, allocates it itself: w: dense
    array to which it copies w first, or None if ``convolution`` reads w in place; scratch: views of the scratch arrays
    of ``convolution``, each dense in some order; and the convolution, if there is an epilogue.
    """

    convolution: PanelConvolutionKernel | GroupConvolutionKernel | PhaseConvolutionKernel
    w: StridedView | None
    scratch: tuple[StridedView, ...]
    epilogue: EpilogueLoop | None = None
