"""Elementwise arithmetic: one table per operand class; XLA's edge cases are in the functions they concern.

All functions take operands in working types (numerics.widen) and work on arrays of any shape, so that scalar
computations (reducers, comparators) can be applied to entire arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from spmd.errors import UnsupportedError
from spmd.evaluator import complex_functions, integer
from spmd.evaluator.conversion import convert, reduce_precision
from spmd.evaluator.numerics import narrow, total_order_keys, widen
from spmd.evaluator.registry import evaluates
from spmd.evaluator.special import erf
from spmd.evaluator.value import NDArray, Operands, Value, array_of, arrays_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import CompareAttrs, Opcode, ReducePrecisionAttrs
from spmd.shape import PrimitiveType

Unary: TypeAlias = Callable[[NDArray], NDArray]
Binary: TypeAlias = Callable[[NDArray, NDArray], NDArray]


def _round_half_away(x: NDArray) -> NDArray:
    # trunc(x + 0.5) is wrong for 0.49999997 and for odd integers above 2**23; the remainder is
    # exact.
    truncated = np.trunc(x)
    away = np.abs(x - truncated) >= 0.5
    return np.copysign(np.where(away, np.abs(truncated) + x.dtype.type(1), np.abs(truncated)), x)


def _sign(x: NDArray) -> NDArray:
    if x.dtype.kind == "c":
        return complex_functions.sign(x)
    if x.dtype.kind == "f":
        return np.where(np.isnan(x), x, np.copysign((x != 0).astype(x.dtype), x))
    return np.sign(x)


def _logistic(x: NDArray) -> NDArray:
    one = x.dtype.type(1)
    return complex_functions.logistic(x) if x.dtype.kind == "c" else one / (one + np.exp(-x))


def _cbrt(x: NDArray) -> NDArray:
    # npy_cbrtf of some C libraries is 1 ulp off; f64 holds an f32 result exactly.
    return np.cbrt(x.astype(np.float64)).astype(x.dtype)


def _rsqrt(x: NDArray) -> NDArray:
    return complex_functions.rsqrt(x) if x.dtype.kind == "c" else x.dtype.type(1) / np.sqrt(x)


def _expm1(x: NDArray) -> NDArray:
    return complex_functions.expm1(x) if x.dtype.kind == "c" else np.expm1(x)


def _log1p(x: NDArray) -> NDArray:
    return complex_functions.log1p(x) if x.dtype.kind == "c" else np.log1p(x)


def _not(x: NDArray) -> NDArray:
    return np.logical_not(x) if x.dtype == np.bool_ else np.invert(x)


UNARY: dict[Opcode, Unary] = {
    Opcode.ABS: np.abs,
    Opcode.ACOS: np.arccos,
    Opcode.ACOSH: np.arccosh,
    Opcode.ASIN: np.arcsin,
    Opcode.ASINH: np.arcsinh,
    Opcode.ATANH: np.arctanh,
    Opcode.CBRT: _cbrt,
    Opcode.CEIL: np.ceil,
    Opcode.COSH: np.cosh,
    Opcode.COSINE: np.cos,
    Opcode.ERF: erf,
    Opcode.EXPONENTIAL: np.exp,
    Opcode.EXPONENTIAL_MINUS_ONE: _expm1,
    Opcode.FLOOR: np.floor,
    Opcode.IMAG: np.imag,
    Opcode.IS_FINITE: np.isfinite,
    Opcode.LOG: np.log,
    Opcode.LOG_PLUS_ONE: _log1p,
    Opcode.LOGISTIC: _logistic,
    Opcode.NEGATE: np.negative,
    Opcode.NOT: _not,
    Opcode.REAL: np.real,
    Opcode.ROUND_NEAREST_AFZ: _round_half_away,
    Opcode.ROUND_NEAREST_EVEN: np.rint,
    Opcode.RSQRT: _rsqrt,
    Opcode.SIGN: _sign,
    Opcode.SINE: np.sin,
    Opcode.SINH: np.sinh,
    Opcode.SQRT: np.sqrt,
    Opcode.TAN: np.tan,
    Opcode.TANH: np.tanh,
}


def _subtract(x: NDArray, y: NDArray) -> NDArray:
    return np.logical_xor(x, y) if x.dtype == np.bool_ else np.subtract(x, y)


def _divide(x: NDArray, y: NDArray) -> NDArray:
    if x.dtype.kind == "c":
        return complex_functions.divide(x, y)
    return np.divide(x, y) if x.dtype.kind == "f" else integer.divide(x, y)


def _remainder(x: NDArray, y: NDArray) -> NDArray:
    return np.fmod(x, y) if x.dtype.kind == "f" else integer.remainder(x, y)


def _power(x: NDArray, y: NDArray) -> NDArray:
    if x.dtype.kind == "c":
        return complex_functions.power(x, y)
    return np.power(x, y) if x.dtype.kind == "f" else integer.power(x, y)


def _atan2(y: NDArray, x: NDArray) -> NDArray:
    return complex_functions.atan2(y, x) if x.dtype.kind == "c" else np.arctan2(y, x)


BINARY: dict[Opcode, Binary] = {
    Opcode.ADD: np.add,
    Opcode.AND: np.bitwise_and,
    Opcode.ATAN2: _atan2,
    Opcode.COMPLEX: complex_functions.make_complex,
    Opcode.DIVIDE: _divide,
    Opcode.MAXIMUM: np.maximum,
    Opcode.MINIMUM: np.minimum,
    Opcode.MULTIPLY: np.multiply,
    Opcode.OR: np.bitwise_or,
    Opcode.POWER: _power,
    Opcode.REMAINDER: _remainder,
    Opcode.SUBTRACT: _subtract,
    Opcode.XOR: np.bitwise_xor,
}

_SHIFTS: dict[Opcode, Callable[[NDArray, NDArray, int], NDArray]] = {
    Opcode.SHIFT_LEFT: integer.shift_left,
    Opcode.SHIFT_RIGHT_ARITHMETIC: integer.shift_right_arithmetic,
    Opcode.SHIFT_RIGHT_LOGICAL: integer.shift_right_logical,
}
#: Functions of two integers that depend on their number of bits.
_OF_BITS = {**_SHIFTS, Opcode.MULHI: integer.multiply_high}

_COMPARE: dict[str, Callable[[NDArray, NDArray], NDArray]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


@evaluates(*UNARY)
def evaluate_unary(instruction: HloInstruction, operands: Operands) -> Value:
    result = UNARY[instruction.opcode](widen(array_of(operands[0])))
    return narrow(result, instruction.array_shape.element_type.numpy)


def of_common_sizes(lhs: NDArray, rhs: NDArray) -> tuple[NDArray, NDArray]:
    """Return operands cut to the smaller of their run-time sizes; a size of 1 is repeated to the other's size.

    Static arrays have the same sizes, or are scalars of a function that is applied to entire arrays.
    """
    if lhs.shape == rhs.shape or lhs.ndim != rhs.ndim:
        return lhs, rhs
    common = tuple(
        slice(None if 1 in (m, n) else min(m, n)) for m, n in zip(lhs.shape, rhs.shape, strict=True)
    )
    return lhs[common], rhs[common]


@evaluates(*BINARY)
def evaluate_binary(instruction: HloInstruction, operands: Operands) -> Value:
    lhs, rhs = of_common_sizes(*arrays_of(operands))
    result = BINARY[instruction.opcode](widen(lhs), widen(rhs))
    return narrow(result, instruction.array_shape.element_type.numpy)


_BIT_COUNTS: dict[Opcode, Callable[[NDArray, int], NDArray]] = {
    Opcode.COUNT_LEADING_ZEROS: integer.count_leading_zeros,
    Opcode.POPCNT: integer.population_count,
}


@evaluates(*_BIT_COUNTS)
def evaluate_bit_count(instruction: HloInstruction, operands: Operands) -> Value:
    kind = instruction.array_shape.element_type
    return narrow(
        _BIT_COUNTS[instruction.opcode](widen(array_of(operands[0])), kind.bits), kind.numpy
    )


@evaluates(*_OF_BITS)
def evaluate_of_bits(instruction: HloInstruction, operands: Operands) -> Value:
    kind = instruction.array_shape.element_type
    lhs, rhs = arrays_of(operands)
    result = _OF_BITS[instruction.opcode](widen(lhs), widen(rhs), kind.bits)
    return narrow(result, kind.numpy)


@evaluates(Opcode.COMPARE)
def evaluate_compare(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate a comparison. ``type=TOTALORDER`` compares floats by sign and magnitude: -nan < -inf < ... < -0 < +0 <
    ... < inf < nan.
    """
    attrs = instruction.attrs_as(CompareAttrs)
    lhs, rhs = of_common_sizes(*arrays_of(operands))
    if attrs.type == "TOTALORDER":
        lhs, rhs = total_order_keys(lhs), total_order_keys(rhs)
    return np.asarray(_COMPARE[attrs.direction](widen(lhs), widen(rhs)))


@evaluates(Opcode.SELECT)
def evaluate_select(_: HloInstruction, operands: Operands) -> Value:
    pred, on_true, on_false = arrays_of(operands)
    return np.where(pred, on_true, on_false)


@evaluates(Opcode.CLAMP)
def evaluate_clamp(instruction: HloInstruction, operands: Operands) -> Value:
    """Return min(high, max(value, low)); NaN in any of the three propagates. Scalar bounds apply to all elements."""
    low, value, high = (widen(x) for x in arrays_of(operands))
    clamped = np.minimum(high, np.maximum(value, low))
    return narrow(clamped, instruction.array_shape.element_type.numpy)


@evaluates(Opcode.CONVERT)
def evaluate_convert(instruction: HloInstruction, operands: Operands) -> Value:
    return convert(array_of(operands[0]), instruction.array_shape.element_type)


@evaluates(Opcode.REDUCE_PRECISION)
def evaluate_reduce_precision(instruction: HloInstruction, operands: Operands) -> Value:
    attrs = instruction.attrs_as(ReducePrecisionAttrs)
    x = array_of(operands[0])
    return reduce_precision(x, attrs.exponent_bits, attrs.mantissa_bits)


@evaluates(Opcode.STOCHASTIC_CONVERT)
def evaluate_stochastic_convert(instruction: HloInstruction, operands: Operands) -> Value:
    """Round to an integer up or down: up with the probability of the fraction, decided by the random bits.

    operands: floating [..], unsigned [..] of the same width.
    """
    kind = instruction.array_shape.element_type
    if not kind.is_signed_integer:
        raise UnsupportedError(
            f"{instruction!r}: stochastic-convert gives signed integers, not {kind}"
        )
    x, random = arrays_of(operands)
    wide = np.abs(widen(x).astype(np.float64))
    truncated = np.trunc(wide)
    bits = PrimitiveType.from_numpy(random.dtype).bits
    up = random.astype(np.float64) < (wide - truncated) * 2.0**bits
    return convert(np.copysign(truncated + up, widen(x).astype(np.float64)), kind)
