"""Convolution: every window becomes a row (im2col), then a matrix product per feature group."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided

from spmd.evaluator.dot import matmul
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of
from spmd.evaluator.windows import dilate_and_pad
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConvDimensionNumbers, ConvolutionAttrs
from spmd.ops.window import Window, WindowDimension
from spmd.shape import PrimitiveType

#: Rows are made for a part of the batch at a time, so that they have fewer elements than this.
_MAX_ROWS_ELEMENTS = 1 << 25


@evaluates(Opcode.CONVOLUTION)
def evaluate_convolution(instruction: HloInstruction, operands: Operands) -> Value:
    attrs = instruction.attrs_as(ConvolutionAttrs)
    lhs, rhs = arrays_of(operands)
    dims = attrs.dimension_numbers
    x = lhs.transpose([dims.input_batch, *dims.input_spatial, dims.input_feature])
    kernel = rhs.transpose(
        [*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature]
    )
    reversed_axes = tuple(i for i, w in enumerate(attrs.window.dims) if w.reversal)
    kernel = np.flip(kernel, reversed_axes) if reversed_axes else kernel
    result = instruction.array_shape.element_type
    if attrs.batch_group_count > 1:
        out = _batch_groups(x, kernel, attrs, result)
    else:
        out = _feature_groups(x, kernel, attrs.window, attrs.feature_group_count, result)
    return out.transpose(np.argsort(_output_order(dims)))


def _output_order(dims: ConvDimensionNumbers) -> list[int]:
    return [dims.output_batch, *dims.output_spatial, dims.output_feature]


def _batch_groups(
    x: NDArray, kernel: NDArray, attrs: ConvolutionAttrs, result: PrimitiveType
) -> NDArray:
    """Convolve group g of the batch with group g of the output features."""
    groups = attrs.batch_group_count
    parts = [
        _feature_groups(xs, ks, attrs.window, attrs.feature_group_count, result)
        for xs, ks in zip(np.split(x, groups, 0), np.split(kernel, groups, -1), strict=True)
    ]
    return np.concatenate(parts, axis=-1)


def _feature_groups(
    x: NDArray, kernel: NDArray, window: Window, groups: int, result: PrimitiveType
) -> NDArray:
    """Convolve x [n, spatial.., c] with kernel [window.., c / groups, o] to [n, out.., o]."""
    zero = np.zeros((), x.dtype)
    frame = Window((WindowDimension(), *window.dims, WindowDimension()))
    padded = dilate_and_pad(x, frame, zero)
    out = tuple(w.output_size(n) for n, w in zip(x.shape[1:-1], window.dims, strict=True))
    *sizes, inner, outputs = kernel.shape
    depth = math.prod(sizes) * inner
    positions = math.prod(out)
    columns = kernel.reshape(depth, groups, outputs // groups).transpose(1, 0, 2)
    total = np.empty((x.shape[0], positions, groups, outputs // groups), result.numpy)
    step = max(1, _MAX_ROWS_ELEMENTS // max(1, positions * depth * groups))
    for start in range(0, x.shape[0], step):
        rows = _windows(padded[start : start + step], window, out, groups)
        count = rows.shape[0]
        # [groups, n, positions, depth] x [groups, 1, depth, o / groups]
        rows = np.moveaxis(rows, -2 - len(sizes), 0).reshape(groups, count * positions, depth)
        product = matmul(rows, columns, result)
        total[start : start + step] = np.moveaxis(product, 0, 1).reshape(
            count, positions, groups, outputs // groups
        )
    return total.reshape(x.shape[0], *out, outputs)


def _windows(padded: NDArray, window: Window, out: tuple[int, ...], groups: int) -> NDArray:
    """Return a view [n, out.., groups, window.., c / groups] of padded [n, spatial.., c]."""
    n, *_, c = padded.shape
    batch_stride, *spatial, feature_stride = padded.strides
    sizes = [w.size for w in window.dims]
    # as_strided does not accept all 8-bit float types, but it accepts their bytes.
    elements = padded.view(np.uint8) if padded.itemsize == 1 else padded
    view = as_strided(
        elements,
        shape=(n, *out, groups, *sizes, c // groups),
        strides=(
            batch_stride,
            *(s * w.stride for s, w in zip(spatial, window.dims, strict=True)),
            feature_stride * (c // groups),
            *(s * w.window_dilation for s, w in zip(spatial, window.dims, strict=True)),
            feature_stride,
        ),
        writeable=False,
    )
    return view.view(padded.dtype)
