"""Convolution.

f32[n,oh,ow,o] convolution(f32[n,h,w,i] input, f32[kh,kw,i/groups,o] kernel), window={..}, dim_labels=b01f_01io->b01f
"""

from __future__ import annotations

import math

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConvDimensionNumbers, ConvolutionAttrs
from spmd.ops.checks import bare, check_dims, operand_array, stated_element_type
from spmd.ops.dot import promoted, verify_product
from spmd.ops.opdef import OpCost, define
from spmd.ops.window import WindowDimension
from spmd.shape import ArrayShape, Shape


def infer_convolution(instruction: HloInstruction) -> Shape:
    lhs, rhs = operand_array(instruction, 0), operand_array(instruction, 1)
    attrs = instruction.attrs_as(ConvolutionAttrs)
    numbers = attrs.dimension_numbers
    _check_numbers(lhs, rhs, attrs)
    dims = [0] * lhs.rank
    dims[numbers.output_batch] = lhs.dims[numbers.input_batch] // attrs.batch_group_count
    dims[numbers.output_feature] = rhs.dims[numbers.kernel_output_feature]
    for i, window in enumerate(attrs.window.dims):
        dims[numbers.output_spatial[i]] = window.output_size(lhs.dims[numbers.input_spatial[i]])
    return bare(
        stated_element_type(instruction, promoted(lhs.element_type, rhs.element_type)), dims
    )


def _check_numbers(lhs: ArrayShape, rhs: ArrayShape, attrs: ConvolutionAttrs) -> None:
    numbers, groups, batch_groups = (
        attrs.dimension_numbers,
        attrs.feature_group_count,
        attrs.batch_group_count,
    )
    check_dims(
        (numbers.input_batch, numbers.input_feature, *numbers.input_spatial),
        lhs.rank,
        "input dimensions",
    )
    check_dims(
        (numbers.kernel_input_feature, numbers.kernel_output_feature, *numbers.kernel_spatial),
        rhs.rank,
        "kernel dimensions",
    )
    check_dims(
        (numbers.output_batch, numbers.output_feature, *numbers.output_spatial),
        lhs.rank,
        "output dimensions",
    )
    if lhs.rank != rhs.rank or lhs.rank != 2 + attrs.window.rank:
        raise ShapeError(
            f"input rank {lhs.rank}, kernel rank {rhs.rank} and window rank {attrs.window.rank} do not fit"
        )
    for i, window in enumerate(attrs.window.dims):
        if rhs.dims[numbers.kernel_spatial[i]] != window.size:
            raise ShapeError(f"window dimension {i} has size {window.size}, the kernel has {rhs}")
    features = rhs.dims[numbers.kernel_input_feature] * groups
    if groups < 1 or lhs.dims[numbers.input_feature] != features:
        raise ShapeError(
            f"input has {lhs.dims[numbers.input_feature]} features, the kernel {features} ({groups} groups)"
        )
    if groups > 1 and batch_groups > 1:
        raise ShapeError(
            f"feature_group_count={groups} and batch_group_count={batch_groups} cannot both exceed 1"
        )
    if any(window.size < 1 for window in attrs.window.dims):
        raise ShapeError(
            f"a window covers at least one element, found sizes {[w.size for w in attrs.window.dims]}"
        )
    if batch_groups < 1 or lhs.dims[numbers.input_batch] % batch_groups:
        raise ShapeError(f"batch_group_count={batch_groups} does not divide the batch of {lhs}")
    if rhs.dims[numbers.kernel_output_feature] % (groups * batch_groups):
        raise ShapeError(f"the group counts do not divide the kernel's output features of {rhs}")


def valid_positions(window: WindowDimension, base: int, output: int) -> int:
    """Count the (output, kernel) index pairs that read an input element: neither padding nor a dilation hole.

    Closed form per kernel index: 0 <= output * stride + offset <= (base - 1) * dilation, divisible by dilation.
    """
    total = 0
    for k in range(window.size):
        offset = k * window.window_dilation - window.padding_low
        low = max(0, -(offset // window.stride))
        high = min(output - 1, ((base - 1) * window.base_dilation - offset) // window.stride)
        if high < low or base == 0:
            continue
        if window.base_dilation == 1:
            total += high - low + 1
            continue
        total += _multiples(window.stride, offset, window.base_dilation, low, high)
    return total


def _multiples(stride: int, offset: int, dilation: int, low: int, high: int) -> int:
    """Count the i in low..high for which i*stride + offset is divisible by ``dilation``: they recur with a fixed
    period.
    """
    period = dilation // math.gcd(stride, dilation)
    first = next(
        (i for i in range(low, low + period) if (i * stride + offset) % dilation == 0), None
    )
    return 0 if first is None or first > high else (high - first) // period + 1


def convolution_cost(instruction: HloInstruction) -> OpCost:
    """Count 2 flops per multiply-add with a real input element, as XLA does (padding and holes are free)."""
    attrs = instruction.attrs_as(ConvolutionAttrs)
    numbers: ConvDimensionNumbers = attrs.dimension_numbers
    lhs, result = operand_array(instruction, 0), instruction.array_shape
    positions = math.prod(
        valid_positions(
            window, lhs.dims[numbers.input_spatial[i]], result.dims[numbers.output_spatial[i]]
        )
        for i, window in enumerate(attrs.window.dims)
    )
    features = (
        lhs.dims[numbers.input_feature]
        // attrs.feature_group_count
        * result.dims[numbers.output_feature]
    )
    batch = lhs.dims[numbers.input_batch] // attrs.batch_group_count
    return OpCost(flops=2.0 * features * batch * positions)


define(Opcode.CONVOLUTION, infer_convolution, 2, verify_product, convolution_cost)
