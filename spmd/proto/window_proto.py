"""Window and the dimension numbers of convolutions."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.ops.attrs import ConvDimensionNumbers
from spmd.ops.window import Window, WindowDimension
from spmd.proto.schema.xla_data import (
    ConvolutionDimensionNumbersProto,
    WindowDimensionProto,
    WindowProto,
)


def read_window(proto: WindowProto | None) -> Window:
    """Return the window. An absent window is one without dimensions."""
    if proto is None:
        return Window()
    return Window(tuple(map(_read_dimension, proto.dimensions)))


def _read_dimension(proto: WindowDimensionProto) -> WindowDimension:
    return WindowDimension(
        size=proto.size,
        stride=proto.stride,
        padding_low=proto.padding_low,
        padding_high=proto.padding_high,
        base_dilation=proto.base_dilation,
        window_dilation=proto.window_dilation,
        reversal=proto.window_reversal,
    )


def write_window(window: Window) -> WindowProto:
    proto = WindowProto()
    proto.dimensions = [_write_dimension(dim) for dim in window.dims]
    return proto


def _write_dimension(dim: WindowDimension) -> WindowDimensionProto:
    proto = WindowDimensionProto()
    proto.size = dim.size
    proto.stride = dim.stride
    proto.padding_low = dim.padding_low
    proto.padding_high = dim.padding_high
    proto.base_dilation = dim.base_dilation
    proto.window_dilation = dim.window_dilation
    proto.window_reversal = dim.reversal
    return proto


def read_convolution_dims(proto: ConvolutionDimensionNumbersProto | None) -> ConvDimensionNumbers:
    """Return the dimension numbers. Raises HloParseError if input, kernel or output uses a position twice."""
    if proto is None:
        raise HloParseError("convolution_dimension_numbers is missing")
    numbers = ConvDimensionNumbers(
        input_batch=proto.input_batch_dimension,
        input_feature=proto.input_feature_dimension,
        input_spatial=proto.input_spatial_dimensions,
        kernel_input_feature=proto.kernel_input_feature_dimension,
        kernel_output_feature=proto.kernel_output_feature_dimension,
        kernel_spatial=proto.kernel_spatial_dimensions,
        output_batch=proto.output_batch_dimension,
        output_feature=proto.output_feature_dimension,
        output_spatial=proto.output_spatial_dimensions,
    )
    numberings = (
        (numbers.input_batch, numbers.input_feature, *numbers.input_spatial),
        (numbers.kernel_input_feature, numbers.kernel_output_feature, *numbers.kernel_spatial),
        (numbers.output_batch, numbers.output_feature, *numbers.output_spatial),
    )
    if len({len(numbering) for numbering in numberings}) != 1:
        raise HloParseError("convolution dimension numbers of different ranks")
    for numbering in numberings:
        # A number that exceeds the rank denotes a dimension without a label; there are few of these.
        if len(set(numbering)) != len(numbering) or not all(
            0 <= n < 2 * len(numbering) + 8 for n in numbering
        ):
            raise HloParseError(f"convolution dimension numbers cannot be {list(numbering)}")
    return numbers


def write_convolution_dims(numbers: ConvDimensionNumbers) -> ConvolutionDimensionNumbersProto:
    proto = ConvolutionDimensionNumbersProto()
    proto.input_batch_dimension = numbers.input_batch
    proto.input_feature_dimension = numbers.input_feature
    proto.input_spatial_dimensions = numbers.input_spatial
    proto.kernel_input_feature_dimension = numbers.kernel_input_feature
    proto.kernel_output_feature_dimension = numbers.kernel_output_feature
    proto.kernel_spatial_dimensions = numbers.kernel_spatial
    proto.output_batch_dimension = numbers.output_batch
    proto.output_feature_dimension = numbers.output_feature
    proto.output_spatial_dimensions = numbers.output_spatial
    return proto
