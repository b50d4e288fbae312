"""Helpers that library calls share: scaling by a number, activations, rounding to the result's type."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.shape import PrimitiveType

_WIDE = (PrimitiveType.F64, PrimitiveType.C64, PrimitiveType.C128)


def computing_type(element_type: PrimitiveType) -> PrimitiveType:
    """Return the type in which a library sums products of ``element_type``: s32 for integers, f32 for narrow floats."""
    if element_type.is_integer:
        return PrimitiveType.S32
    return element_type if element_type in _WIDE else PrimitiveType.F32


def number_like(x: HloInstruction, value: complex, b: Builder) -> HloInstruction:
    """Return an array like ``x`` all elements of which are ``value``."""
    return b.full(x.array_shape.without_layout(), value)


def scaled(x: HloInstruction, factor: complex, b: Builder) -> HloInstruction:
    return x if factor == 1 else b.multiply(x, number_like(x, factor, b))


def conjugate(x: HloInstruction, b: Builder) -> HloInstruction:
    if not x.array_shape.element_type.is_complex:
        return x
    real, imaginary = b.unary(Opcode.REAL, x), b.unary(Opcode.IMAG, x)
    return b.binary(Opcode.COMPLEX, real, b.negate(imaginary))


def rounded(x: HloInstruction, element_type: PrimitiveType, b: Builder) -> HloInstruction:
    """Return ``x`` in the type of the result: 8-bit types saturate; integers round to nearest, ties to even."""
    kind = x.array_shape.element_type
    if kind is element_type:
        return x
    if element_type.bits == 8 and kind.is_floating:
        if element_type.is_integer:
            info = np.iinfo(element_type.numpy)
            low, high = float(info.min), float(info.max)
            x = b.unary(Opcode.ROUND_NEAREST_EVEN, x)
        else:
            limits = ml_dtypes.finfo(element_type.numpy)  # type: ignore[no-untyped-call]
            low, high = float(limits.min), float(limits.max)
        x = b.clamp(number_like(x, low, b), x, number_like(x, high, b))
    return b.convert(x, element_type)


def relu(x: HloInstruction, b: Builder) -> HloInstruction:
    return b.maximum(x, number_like(x, 0, b))


def relu6(x: HloInstruction, b: Builder) -> HloInstruction:
    return b.minimum(relu(x, b), number_like(x, 6, b))


def gelu(x: HloInstruction, b: Builder) -> HloInstruction:
    """Return x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as cuBLASLt defines it."""
    cube = b.multiply(x, b.multiply(x, x))
    inner = scaled(b.add(x, scaled(cube, 0.044715, b)), math.sqrt(2 / math.pi), b)
    one = number_like(x, 1, b)
    return b.multiply(scaled(x, 0.5, b), b.add(one, b.unary(Opcode.TANH, inner)))


def silu(x: HloInstruction, b: Builder) -> HloInstruction:
    return b.multiply(x, b.unary(Opcode.LOGISTIC, x))


def elu(x: HloInstruction, b: Builder) -> HloInstruction:
    negative = b.compare(x, number_like(x, 0, b), "LT")
    return b.select(negative, b.unary(Opcode.EXPONENTIAL_MINUS_ONE, x), x)


def leaky_relu(slope: float) -> Callable[[HloInstruction, Builder], HloInstruction]:
    def activation(x: HloInstruction, b: Builder) -> HloInstruction:
        negative = b.compare(x, number_like(x, 0, b), "LT")
        return b.select(negative, scaled(x, slope, b), x)

    return activation
