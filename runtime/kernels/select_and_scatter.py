"""select-and-scatter (the gradient of pooling) by native code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.codegen.llvm_select_and_scatter import (
    FUNCTION,
    SelectedElements,
    SelectWords,
    select_and_scatter_code,
)
from runtime.codegen.native_call import in_order, native_call
from runtime.kernel import CPU_KERNELS, Action, Kernel, KernelArrays
from runtime.kernels.convert import converting
from spmd.ops.window import Window


@dataclass(frozen=True)
class SelectAndScatterKernel(Kernel):
    """results[0] = operands[2] everywhere, to which each window's element of operands[1] is added where it selects.

    A window selects among the elements of operands[0] that it covers; one over padding alone selects none. The base is
    not dilated. scratch[0]: the results in f32, where the elements are narrower floats.
    """

    window: Window
    elements: SelectedElements


@CPU_KERNELS.binds(SelectAndScatterKernel)
def bind_select_and_scatter(kernel: SelectAndScatterKernel, arrays: KernelArrays) -> Action:
    operand, source, init = arrays.operands
    (result,) = arrays.results
    total = arrays.scratch[0] if arrays.scratch else result
    dimensions = [
        (
            *(windows, dim.size, dim.stride, dim.window_dilation, dim.padding_low, size),
            *strides,
        )
        for windows, size, dim, *strides in zip(
            source.shape,
            operand.shape,
            kernel.window.dims,
            operand.strides,
            source.strides,
            total.strides,
            strict=True,
        )
    ]
    words = SelectWords(
        operand.ctypes.data, source.ctypes.data, total.ctypes.data, dimensions
    ).packed()
    code = select_and_scatter_code(kernel.elements)
    record = np.array(words, np.int64)
    add = native_call(code, FUNCTION, record, (operand, source, total))
    after = [] if total is result else [converting(total, result)]
    return in_order(converting(init, total), add, *after)
