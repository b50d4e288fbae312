"""Convolutions with adjacent groups, such as depthwise ones and their gradients. A vector holds several groups."""

from __future__ import annotations

from runtime.cpu.kernels.convert import computed_in
from runtime.cpu.kernels.convolution import tuning
from runtime.cpu.kernels.convolution.convolution_axes import coordinate_tables, expanded
from runtime.cpu.kernels.convolution.ir.grouped_ir import (
    FUNCTION,
    VECTOR_BYTES,
    GroupRecord,
    group_code,
)
from runtime.cpu.kernels.native_call import native_call
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.convolution import GroupConvolutionKernel
from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension


@CPU_KERNELS.binds(GroupConvolutionKernel)
def bind_group_convolution(kernel: GroupConvolutionKernel, arrays: KernelArrays) -> Action:
    """Bind the convolution as one native call, between conversions of arrays of other types through scratch."""

    def convolve(x: NDArray, w: NDArray, out: NDArray) -> Action:
        record = _record(kernel.window, x, w, out).to_array()
        vectors = min(-(-len(x) * x.itemsize // VECTOR_BYTES), tuning.GROUP_VECTORS)
        code = group_code(kernel.element_type, vectors)
        return native_call(code, FUNCTION, record, (x, w, out))

    return computed_in(kernel.element_type, arrays, arrays.scratch, convolve)


def _record(window: Window, x: NDArray, w: NDArray, out: NDArray) -> GroupRecord:
    """Return the record of the convolution, after adding spatial dimensions of size 1 up to two."""
    window, x, w, out = expanded(window, x, w, out, 2)
    dims = window.dims
    tables, start = coordinate_tables(window, x, out.shape[2:-1], w.shape[1:-2])
    first, dilation = zip(*map(_first_and_dilation, dims), strict=True)
    return GroupRecord(
        x=x.ctypes.data + start,
        w=w.ctypes.data,
        out=out.ctypes.data,
        groups=len(x),
        batch=out.shape[1],
        features=out.shape[-1],
        channels=x.shape[-1],
        height=out.shape[2],
        width=out.shape[3],
        window_height=w.shape[1],
        window_width=w.shape[2],
        x_batch=x.strides[1],
        x_channel=x.strides[-1],
        w_row=w.strides[1],
        w_column=w.strides[2],
        w_channel=w.strides[3],
        w_feature=w.strides[-1],
        out_batch=out.strides[1],
        out_row=out.strides[2],
        out_column=out.strides[3],
        out_feature=out.strides[-1],
        first_row=first[0],
        row_stride=dims[0].stride,
        row_dilation=dilation[0],
        first_column=first[1],
        column_stride=dims[1].stride,
        column_dilation=dilation[1],
        rows=tables[0],
        columns=tables[1],
    )


def _first_and_dilation(dim: WindowDimension) -> tuple[int, int]:
    """Return the padded coordinate of window element 0 for output 0, and the distance to element 1's."""
    if not dim.reversal:
        return 0, dim.window_dilation
    return (dim.size - 1) * dim.window_dilation, -dim.window_dilation
