"""cuDNN calls: a convolution, its gradients, and a convolution with bias, side input and activation.

Window and dim_labels are always those of the forward convolution, output = input * filter:

    forward           operands input, filter    result output
    input gradient    operands output, filter   result input
    filter gradient   operands input, output    result filter
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.builder import Builder
from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.library_calls.arithmetic import (
    computing_type,
    elu,
    leaky_relu,
    relu,
    relu6,
    rounded,
    scaled,
)
from spmd.library_calls.registry import LIBRARY_CALLS, Values, require_operands
from spmd.library_calls.settings import Settings, settings_of
from spmd.ops.attrs import ConvDimensionNumbers, ConvolutionAttrs, CustomCallAttrs
from spmd.ops.checks import result_elements
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape, PrimitiveType, as_array
from spmd.text.attrs_text.convolution import read_dim_labels
from spmd.text.lexer import Scanner


@dataclass(frozen=True)
class Forward:
    """Forward convolution of a call: window, dimensions, groups. ``result``: shape of the call's own result."""

    window: Window
    numbers: ConvDimensionNumbers
    groups: int
    result: ArrayShape

    @staticmethod
    def of(call: HloInstruction) -> Forward:
        attrs = call.attrs_as(CustomCallAttrs)
        extra = dict(attrs.extra)
        if attrs.window is None or "dim_labels" not in extra:
            raise UnsupportedError(f"{call!r}: a convolution needs a window and dim_labels")
        numbers = read_dim_labels(Scanner.of(extra["dim_labels"]))
        groups = int(extra.get("feature_group_count", "1"))
        if int(extra.get("batch_group_count", "1")) != 1:
            raise UnsupportedError(f"{call!r}: batch groups of a library's convolution")
        result = as_array(result_elements(call.shape)[0]).without_layout()
        return Forward(attrs.window, numbers, groups, result)


@LIBRARY_CALLS.register("__cudnn$convForward")
def forward(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    require_operands(call, operands, 2)
    return (_finished(_convolved(Forward.of(call), operands, b), call, b),)


@LIBRARY_CALLS.register("__cudnn$convBiasActivationForward")
def with_bias_and_activation(
    call: HloInstruction, operands: Sequence[HloInstruction], b: Builder
) -> Values:
    """Return activation(scale (input * filter) + side_scale side + bias)."""
    about = Forward.of(call)
    settings = settings_of(call).inside("cudnn_conv_backend_config")
    side_scale = settings.number("side_input_scale", 0)
    require_operands(call, operands, 4 if side_scale else 3)
    x = _floating(_convolved(about, operands, b), b)
    kind = x.array_shape.element_type
    x = scaled(x, settings.number("conv_result_scale", 1), b)
    if side_scale:
        x = b.add(x, scaled(b.as_type(operands[3], kind), side_scale, b))
    bias = b.as_type(operands[2], kind)
    x = b.add(x, b.broadcast(bias, (about.numbers.output_feature,), x.dims))
    return (rounded(_activation(settings)(x, b), about.result.element_type, b),)


@LIBRARY_CALLS.register("__cudnn$convBackwardInput")
def input_gradient(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return the gradient of the input: a convolution of the output gradient with the reversed filter."""
    require_operands(call, operands, 2)
    about = Forward.of(call)
    output, kernel = operands
    n = about.numbers
    window = Window(
        tuple(
            _backward(w, about.result.dims[i], output.dims[o])
            for w, i, o in zip(about.window.dims, n.input_spatial, n.output_spatial, strict=True)
        )
    )
    numbers = ConvDimensionNumbers(
        n.output_batch, n.output_feature, n.output_spatial,
        n.kernel_output_feature, n.kernel_input_feature, n.kernel_spatial,
        n.input_batch, n.input_feature, n.input_spatial,
    )  # fmt: skip
    if about.groups > 1:
        kernel = _groups_to_inputs(kernel, about, b)
    attrs = ConvolutionAttrs(window, numbers, about.groups)
    return (_finished(_convolution(output, kernel, attrs, b), call, b),)


@LIBRARY_CALLS.register("__cudnn$convBackwardFilter")
def filter_gradient(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return the gradient of the filter: input times output gradient at each offset of the filter, summed over the
    batch.
    """
    require_operands(call, operands, 2)
    about = Forward.of(call)
    x, output = operands
    n = about.numbers
    window = Window(
        tuple(
            _over_filter(w, x.dims[i], output.dims[o])
            for w, i, o in zip(about.window.dims, n.input_spatial, n.output_spatial, strict=True)
        )
    )
    numbers = ConvDimensionNumbers(
        n.input_feature, n.input_batch, n.input_spatial,
        n.output_batch, n.output_feature, n.output_spatial,
        n.kernel_input_feature, n.kernel_output_feature, n.kernel_spatial,
    )  # fmt: skip
    attrs = ConvolutionAttrs(window, numbers, batch_group_count=about.groups)
    result = _convolution(x, output, attrs, b)
    reversed_dims = [
        d for d, w in zip(n.kernel_spatial, about.window.dims, strict=True) if w.reversal
    ]
    return (_finished(b.reverse(result, reversed_dims) if reversed_dims else result, call, b),)


# ---- the window of each kind
def _backward(w: WindowDimension, input_size: int, output_size: int) -> WindowDimension:
    low = w.dilated_size - 1 - w.padding_low
    spread = (output_size - 1) * w.stride + 1
    high = input_size - 1 + w.dilated_size - spread - low
    return WindowDimension(w.size, 1, low, high, w.stride, w.window_dilation, not w.reversal)


def _over_filter(w: WindowDimension, input_size: int, output_size: int) -> WindowDimension:
    spread = (output_size - 1) * w.stride + 1
    high = w.dilated_size - 1 + spread - input_size - w.padding_low
    return WindowDimension(output_size, w.window_dilation, w.padding_low, high, 1, w.stride)


def _groups_to_inputs(kernel: HloInstruction, about: Forward, b: Builder) -> HloInstruction:
    """Bring the groups from the filter's output features to its input features: [i, g o] => [g i, o]."""
    n, groups = about.numbers, about.groups
    at_input, at_output = n.kernel_input_feature, n.kernel_output_feature
    dims = list(kernel.dims)
    cut = [*dims[:at_output], groups, dims[at_output] // groups, *dims[at_output + 1 :]]
    order = [d + (d > at_output) for d in range(len(dims))]
    order[at_output] = at_output + 1
    order.insert(order.index(at_input + (at_input > at_output)), at_output)
    dims[at_input] *= groups
    dims[at_output] //= groups
    return b.reshape(b.transpose(b.reshape(kernel, cut), order), dims)


# ---- types
def _convolved(about: Forward, operands: Sequence[HloInstruction], b: Builder) -> HloInstruction:
    attrs = ConvolutionAttrs(about.window, about.numbers, about.groups)
    return _convolution(operands[0], operands[1], attrs, b)


def _convolution(
    x: HloInstruction, kernel: HloInstruction, attrs: ConvolutionAttrs, b: Builder
) -> HloInstruction:
    """Return the convolution in the type that the library computes in."""
    kind = computing_type(x.array_shape.element_type)
    return b.create(Opcode.CONVOLUTION, (x, kernel), attrs, shape=ArrayShape(kind, ()))


def _floating(x: HloInstruction, b: Builder) -> HloInstruction:
    is_integer = x.array_shape.element_type.is_integer
    return b.convert(x, PrimitiveType.F32) if is_integer else x


def _finished(x: HloInstruction, call: HloInstruction, b: Builder) -> HloInstruction:
    """Scale ``x`` and round it into the type of the result."""
    settings = settings_of(call).inside("cudnn_conv_backend_config")
    scale = settings.number("conv_result_scale", 1)
    kind = as_array(result_elements(call.shape)[0]).element_type
    return rounded(scaled(_floating(x, b), scale, b) if scale != 1 else x, kind, b)


def _activation(settings: Settings) -> Callable[[HloInstruction, Builder], HloInstruction]:
    known = {
        "kNone": lambda x, _: x,
        "kRelu": relu,
        "kRelu6": relu6,
        "kElu": elu,
        "kLeakyRelu": leaky_relu(settings.number("leakyrelu_alpha", 0)),
        "kSigmoid": lambda x, b: b.unary(Opcode.LOGISTIC, x),
        "kTanh": lambda x, b: b.unary(Opcode.TANH, x),
    }
    mode = settings.fields.get("activation_mode", "kNone")
    if mode not in known:
        raise settings.wrong("activation_mode")
    return known[mode]
