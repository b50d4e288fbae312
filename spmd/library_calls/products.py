"""cuBLAS and cuBLASLt calls: alpha (lhs . rhs) + beta addend, a bias, an activation, and scales of 8-bit floats.

operands: lhs, rhs, addend if beta is not 0, scales of 8-bit operands (lhs, rhs, and if given addend and result), bias
results:  product, value before the activation (..._AUX) or largest magnitude (damax_output), workspace
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.library_calls.arithmetic import computing_type, gelu, relu, rounded, scaled, silu
from spmd.library_calls.registry import LIBRARY_CALLS, Values, require_operands
from spmd.library_calls.settings import Settings, settings_of
from spmd.ops.attrs import DotAttrs
from spmd.ops.checks import result_elements
from spmd.shape import PrimitiveType, as_array

_ACTIVATIONS: dict[str, Callable[[HloInstruction, Builder], HloInstruction]] = {
    "RELU": relu,
    "GELU": gelu,
    "SILU": silu,
}


@dataclass(frozen=True)
class Epilogue:
    """Parts of an epilogue's name (BIAS_GELU_AUX): whether a bias is added, the activation ("" for none), whether its
    operand is a result.
    """

    adds_bias: bool
    activation: str
    has_aux: bool

    @staticmethod
    def of(settings: Settings) -> Epilogue:
        text = settings.text("epilogue", "DEFAULT")
        parts = [] if text == "DEFAULT" else text.split("_")
        bias = parts[:1] == ["BIAS"]
        aux = parts[-1:] == ["AUX"]
        rest = parts[bias : len(parts) - aux]
        if len(rest) > 1 or any(word not in _ACTIVATIONS for word in rest):
            raise settings.wrong("epilogue")
        return Epilogue(bias, "".join(rest), aux)

    def activated(self, x: HloInstruction, b: Builder) -> HloInstruction:
        return _ACTIVATIONS[self.activation](x, b) if self.activation else x


@LIBRARY_CALLS.register("__cublas$gemm", "__cublas$lt$matmul")
def product(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    settings = settings_of(call).inside("gemm_backend_config")
    epilogue = Epilogue.of(settings)
    adds = settings.number("beta", 0) != 0
    require_operands(call, operands, 2 + adds + epilogue.adds_bias)
    x = _sum(settings, operands[0], operands[1], operands[2] if adds else None, (), b)
    before = _with_bias(x, operands[-1], b) if epilogue.adds_bias else x
    kind = _result_type(call)
    result = rounded(epilogue.activated(before, b), kind, b)
    if not epilogue.has_aux:
        return (result,)
    return (result, rounded(before, as_array(result_elements(call.shape)[1]).element_type, b))


@LIBRARY_CALLS.register("__cublas$lt$matmul$f8")
def product_of_8_bit_floats(
    call: HloInstruction, operands: Sequence[HloInstruction], b: Builder
) -> Values:
    settings = settings_of(call).inside("gemm_backend_config")
    epilogue = Epilogue.of(settings)
    adds = settings.number("beta", 0) != 0
    bias = operands[-1] if epilogue.adds_bias else None
    scales = operands[2 + adds : len(operands) - epilogue.adds_bias]
    if not 2 <= len(scales) <= 4 or any(scale.array_shape.num_elements != 1 for scale in scales):
        raise settings.wrong("scale_mode")
    addend = operands[2] if adds else None
    if addend is not None and len(scales) == 4:
        addend = _times(b.as_type(addend, PrimitiveType.F32), scales[2], b)
    x = _sum(settings, operands[0], operands[1], addend, scales[:2], b)
    x = _with_bias(x, bias, b) if bias is not None else x
    x = epilogue.activated(x, b)
    largest = _largest_magnitude(x, b)
    kind = _result_type(call)
    if len(scales) > 2 and kind.bits == 8:
        x = _times(x, scales[-1], b)
    result = rounded(x, kind, b)
    return (result, largest) if settings.flag("damax_output") else (result,)


def _sum(
    settings: Settings,
    lhs: HloInstruction,
    rhs: HloInstruction,
    addend: HloInstruction | None,
    scales: Sequence[HloInstruction],
    b: Builder,
) -> HloInstruction:
    """Return alpha (lhs . rhs) times ``scales``, + beta ``addend``, in the type that the library computes in."""
    kind = computing_type(lhs.array_shape.element_type)
    x = b.dot(lhs, rhs, _dimension_numbers(settings), kind)
    alpha = complex(settings.number("alpha_real", 1), settings.number("alpha_imag", 0))
    factor = alpha if kind.is_complex else alpha.real
    is_fraction = kind.is_integer and factor != 1
    if is_fraction or (addend is not None and addend.array_shape.element_type.is_floating):
        x = b.as_type(x, computing_type(PrimitiveType.F32 if kind.is_integer else kind))
    x = scaled(x, factor, b)
    for scale in scales:
        x = _times(x, scale, b)
    if addend is None:
        return x
    addend = b.as_type(addend, x.array_shape.element_type)
    return b.add(x, scaled(addend, settings.number("beta", 0), b))


def _dimension_numbers(settings: Settings) -> DotAttrs:
    numbers = settings.inside("dot_dimension_numbers")
    return DotAttrs(
        numbers.dimensions("lhs_contracting_dimensions"),
        numbers.dimensions("rhs_contracting_dimensions"),
        numbers.dimensions("lhs_batch_dimensions"),
        numbers.dimensions("rhs_batch_dimensions"),
    )


def _result_type(call: HloInstruction) -> PrimitiveType:
    return as_array(result_elements(call.shape)[0]).element_type


def _with_bias(x: HloInstruction, bias: HloInstruction, b: Builder) -> HloInstruction:
    """Add ``bias`` along the last dimensions, which are columns of rhs."""
    first = len(x.dims) - len(bias.dims)
    wide = b.as_type(bias, x.array_shape.element_type)
    return b.add(x, b.broadcast(wide, range(first, len(x.dims)), x.dims))


def _times(x: HloInstruction, scale: HloInstruction, b: Builder) -> HloInstruction:
    scalar = b.as_type(b.reshape(scale, ()) if scale.dims else scale, x.array_shape.element_type)
    return b.multiply(x, b.broadcast_scalar(scalar, x.dims))


def _largest_magnitude(x: HloInstruction, b: Builder) -> HloInstruction:
    zero = b.scalar_like(x, 0)
    return b.reduce(b.unary(Opcode.ABS, x), range(len(x.dims)), ReductionKind.MAX, zero)
