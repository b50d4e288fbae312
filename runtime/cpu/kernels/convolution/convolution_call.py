"""Convolutions of programs for a GPU: perhaps a copy of the filter, the convolution, and the loop that reads it."""

from __future__ import annotations

from numpy.lib.stride_tricks import as_strided

from collectives.communicator.actions.shared_buffers import private_array
from runtime.cpu.kernels.native_call import in_order
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.convolution_call import ConvolutionCallKernel
from runtime.program.records.copy import CopyKernel
from runtime.program.strides import StridedView
from spmd.literal import NDArray


@CPU_KERNELS.binds(ConvolutionCallKernel)
def bind_convolution_call(kernel: ConvolutionCallKernel, arrays: KernelArrays) -> Action:
    """Bind the parts of ``kernel``, one after the other, with memory of their own between them."""
    *operands, x, w = arrays.operands
    results, epilogue = arrays.results, kernel.epilogue
    before: list[Action] = []
    after: list[Action] = []
    if kernel.w is not None:
        _, copied = _allocated(kernel.w)
        before.append(CPU_KERNELS.bind(CopyKernel(), KernelArrays((w,), (copied,))))
        w = copied
    if epilogue is not None:
        memory, seen = _allocated(epilogue.view)
        made = memory.reshape(epilogue.loop.dims)
        after.append(CPU_KERNELS.bind(epilogue.loop, KernelArrays((*operands, made), results)))
        results = (seen,)
    own = tuple(_allocated(view)[1] for view in kernel.scratch)
    convolve = CPU_KERNELS.bind(kernel.convolution, KernelArrays((x, w), results, own))
    return in_order(*before, convolve, *after)


def _allocated(view: StridedView) -> tuple[NDArray, NDArray]:
    """Return new memory for the elements of ``view``, which has no gaps, and that memory as ``view`` sees it."""
    memory = private_array((view.num_elements,), view.element_type.numpy)
    return memory, as_strided(memory, view.dims, view.strides)
