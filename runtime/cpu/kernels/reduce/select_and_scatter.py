"""Select-and-scatter, the gradient of pooling, by native code."""

from __future__ import annotations

from runtime.cpu.kernels.convert import converting
from runtime.cpu.kernels.loop.loop import InnerStride
from runtime.cpu.kernels.native_call import in_order, native_call
from runtime.cpu.kernels.reduce.select_and_scatter_ir import (
    FUNCTION,
    SelectAxis,
    SelectRecord,
    SelectVariant,
    select_and_scatter_code,
)
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.reduce import SelectAndScatterKernel
from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension


@CPU_KERNELS.binds(SelectAndScatterKernel)
def bind_select_and_scatter(kernel: SelectAndScatterKernel, arrays: KernelArrays) -> Action:
    """Bind the operation: the result is filled with the initial value, and then windows combine elements with it.

    If scratch is given, it holds the totals in f32, which are converted to the result at the end.
    """
    operand, source, init = arrays.operands
    (result,) = arrays.results
    total = arrays.scratch[0] if arrays.scratch else result
    lanes = _lane_dimension(kernel.window, operand)
    of_lanes = (1, 0, 0, 0)
    if lanes is not None:
        of_lanes = (operand.shape[lanes], *(x.strides[lanes] for x in (operand, source, total)))
    axes = [
        SelectAxis(
            *(source.shape[d], operand.shape[d]),
            *(dim.size, dim.stride, dim.window_dilation, dim.padding_low),
            *(x.strides[d] for x in (operand, source, total)),
        )
        for d, dim in enumerate(kernel.window.dims)
        if d != lanes
    ]
    record = SelectRecord(
        operand.ctypes.data, source.ctypes.data, total.ctypes.data, *of_lanes, axes
    )
    variant = SelectVariant(
        kernel.elements,
        len(axes),
        InnerStride.of(of_lanes[1], operand.itemsize),
        InnerStride.of(of_lanes[2], source.itemsize),
        InnerStride.of(of_lanes[3], total.itemsize),
    )
    code = select_and_scatter_code(variant)
    add = native_call(code, FUNCTION, record.to_array(), (operand, source, total))
    after = [] if total is result else [converting(total, result)]
    return in_order(converting(init, total), add, *after)


def _lane_dimension(window: Window, operand: NDArray) -> int | None:
    """Return the dimension of smallest operand stride along which windows are single elements, or None."""
    single = [d for d, dim in enumerate(window.dims) if dim == WindowDimension()]
    return min(single, key=lambda d: abs(operand.strides[d]), default=None)
