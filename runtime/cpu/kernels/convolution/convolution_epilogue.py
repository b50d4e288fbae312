"""Convolutions with epilogues, which programs for a GPU contain: the convolution, and then the loop that reads it."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runtime.cpu.kernels.native_call import in_order
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.convolution_epilogue import ConvolutionEpilogueKernel
from runtime.program.strides import StridedView
from spmd.literal import NDArray


@CPU_KERNELS.binds(ConvolutionEpilogueKernel)
def bind_convolution_epilogue(kernel: ConvolutionEpilogueKernel, arrays: KernelArrays) -> Action:
    """Bind the convolution to a new array, and the loop that reads it. Such kernels have no scratch of the program."""
    *operands, image, filter_ = arrays.operands
    made, seen = _allocated(kernel.result)
    scratch = tuple(_allocated(view)[1] for view in kernel.scratch)
    read = (*operands, made.reshape(kernel.epilogue.dims))
    return in_order(
        CPU_KERNELS.bind(kernel.convolution, KernelArrays((image, filter_), (seen,), scratch)),
        CPU_KERNELS.bind(kernel.epilogue, KernelArrays(read, arrays.results)),
    )


def _allocated(view: StridedView) -> tuple[NDArray, NDArray]:
    """Return new memory for the elements of ``view``, which has no gaps, and that memory as ``view`` sees it."""
    memory = np.zeros(view.num_elements, view.element_type.numpy)
    return memory, as_strided(memory, view.dims, view.strides)
