"""Elementwise operations over several types, conversions, selects and compares."""

from __future__ import annotations

import math

from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape, PrimitiveType
from tests.differential.generator.table import operation
from tests.differential.generator.writer import (
    BF16,
    F16,
    F32,
    PRED,
    S8,
    S32,
    U8,
    U32,
    Value,
    Writer,
)

_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


_ARITHMETIC = (Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY, Opcode.MAXIMUM, Opcode.MINIMUM)


@operation(6, *_ARITHMETIC)
def arithmetic(w: Writer) -> Value | None:
    """Write an add, subtract, multiply, maximum or minimum of two values of one shape."""
    x = w.pick(lambda v: v.dtype is not PRED)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    opcode = w.opcode(*_ARITHMETIC)
    if opcode is Opcode.MULTIPLY:
        bound = x.bound * y.bound if x.bound and y.bound else 0.0
    elif opcode in (Opcode.MAXIMUM, Opcode.MINIMUM):
        bound = max(x.bound, y.bound)
    else:
        bound = x.bound + y.bound
    if not x.is_float:
        bound = math.inf
    return w.keep(w.result(w.builder.binary(opcode, x.hlo, y.hlo), bound, x, y))


@operation(2, Opcode.NEGATE, Opcode.ABS, Opcode.SIGN)
def unary(w: Writer) -> Value | None:
    opcode = w.opcode(Opcode.NEGATE, Opcode.ABS, Opcode.SIGN)
    x = w.pick(
        lambda v: (v.is_float or v.dtype in (S32, S8)) and (v.stable or opcode is not Opcode.SIGN)
    )
    if x is None:
        return None
    bound = 1.0 if opcode is Opcode.SIGN else x.bound
    return w.keep(w.result(w.builder.unary(opcode, x.hlo), bound, x))


_ROUNDINGS = (
    Opcode.FLOOR, Opcode.CEIL, Opcode.ROUND_NEAREST_AFZ, Opcode.ROUND_NEAREST_EVEN, Opcode.IS_FINITE,
)  # fmt: skip


@operation(1, *_ROUNDINGS)
def rounding(w: Writer) -> Value | None:
    """Write a rounding of a stable value's halves, so that there is something to round."""
    x = w.pick(lambda v: v.is_float and v.stable)
    if x is None:
        return None
    b = w.builder
    half = b.multiply(x.hlo, b.broadcast_scalar(b.scalar(x.dtype, 0.5), x.dims))
    hlo = b.unary(w.opcode(*_ROUNDINGS), half)
    if hlo.opcode is Opcode.IS_FINITE:
        return w.keep(Value(hlo, 1.0))
    return w.keep(Value(hlo, x.bound + 1, whole=True, stable=True))


@operation(0.7, Opcode.POPCNT, Opcode.COUNT_LEADING_ZEROS)
def counted_bits(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.dtype in (S32, U32, S8, U8)) or w.fitting(S32)
    opcode = w.opcode(Opcode.POPCNT, Opcode.COUNT_LEADING_ZEROS)
    return w.keep(Value(w.builder.unary(opcode, x.hlo), 32.0))


#: Domains to which arguments are brought, so that neither the function nor its slope is large.
_AS_IT_IS, _SMALL, _WITHIN_ONE, _POSITIVE, _ABOVE_ONE = range(5)
_FUNCTIONS = {
    Opcode.TANH: _AS_IT_IS, Opcode.LOGISTIC: _AS_IT_IS, Opcode.ERF: _AS_IT_IS, Opcode.ASINH: _AS_IT_IS,
    Opcode.COSINE: _AS_IT_IS, Opcode.SINE: _AS_IT_IS, Opcode.TAN: _WITHIN_ONE,
    Opcode.EXPONENTIAL: _SMALL, Opcode.EXPONENTIAL_MINUS_ONE: _SMALL, Opcode.COSH: _SMALL, Opcode.SINH: _SMALL,
    Opcode.ACOS: _WITHIN_ONE, Opcode.ASIN: _WITHIN_ONE, Opcode.ATANH: _WITHIN_ONE,
    Opcode.LOG: _POSITIVE, Opcode.LOG_PLUS_ONE: _POSITIVE, Opcode.SQRT: _POSITIVE, Opcode.RSQRT: _POSITIVE,
    Opcode.CBRT: _POSITIVE, Opcode.ACOSH: _ABOVE_ONE,
}  # fmt: skip


@operation(3, *_FUNCTIONS)
def transcendental(w: Writer) -> Value | None:
    """Write a function whose last bit may depend on where an element lies: the result is no longer stable."""
    x = w.pick(lambda v: v.is_float)
    if x is None:
        return None
    opcode = w.opcode(*_FUNCTIONS)
    argument = _brought_to(w, x, _FUNCTIONS[opcode])
    bound = 21.0 if _FUNCTIONS[opcode] is _SMALL else max(2.0, math.sqrt(x.bound + 2))
    return w.keep(Value(w.builder.unary(opcode, argument), bound, whole=False, stable=False))


def _brought_to(w: Writer, x: Value, domain: int) -> HloInstruction:
    b = w.builder
    if domain is _AS_IT_IS:
        return x.hlo
    if domain in (_SMALL, _WITHIN_ONE):
        limit = 3 if domain is _SMALL else 0.75
        return b.clamp(b.scalar(x.dtype, -limit), x.hlo, b.scalar(x.dtype, limit))
    least = b.scalar(x.dtype, 1 if domain is _POSITIVE else 2)
    return b.add(b.unary(Opcode.ABS, x.hlo), b.broadcast_scalar(least, x.dims))


@operation(1, Opcode.POWER, Opcode.ATAN2)
def function_of_two(w: Writer) -> Value | None:
    """Write (|x| + 1) to the power of y in [-2, 2], or the angle of (|x| + 1, y)."""
    x = w.pick(lambda v: v.dtype is F32)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    base = _brought_to(w, x, _POSITIVE)
    b = w.builder
    if w.opcode(Opcode.POWER, Opcode.ATAN2) is Opcode.ATAN2:
        hlo, bound = b.binary(Opcode.ATAN2, y.hlo, base), 2.0
    else:
        exponent = b.clamp(b.scalar(F32, -2), y.hlo, b.scalar(F32, 2))
        hlo, bound = b.binary(Opcode.POWER, base, exponent), (x.bound + 1) ** 2
    return w.keep(Value(hlo, bound, whole=False, stable=False))


@operation(1, Opcode.DIVIDE)
def quotient(w: Writer) -> Value | None:
    """Write x / (|y| + 1)."""
    x = w.pick(lambda v: v.is_float)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    hlo = w.builder.divide(x.hlo, _brought_to(w, y, _POSITIVE))
    return w.keep(Value(hlo, x.bound, whole=False, stable=x.stable and y.stable))


@operation(1, Opcode.DIVIDE, Opcode.REMAINDER)
def integer_division(w: Writer) -> Value | None:
    """Write x / (y | 1) or its remainder."""
    x = w.pick(lambda v: v.dtype in (S32, U32)) or w.fitting(S32)
    y = w.of(x.dtype, x.dims)
    b = w.builder
    odd = b.binary(Opcode.OR, y.hlo, b.broadcast_scalar(b.scalar(x.dtype, 1), x.dims))
    opcode = w.opcode(Opcode.DIVIDE, Opcode.REMAINDER)
    return w.keep(w.result(b.binary(opcode, x.hlo, odd), math.inf))


@operation(1, Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.NOT)
def bitwise(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.dtype in (PRED, S32, U8, U32)) or w.fitting(S32)
    opcode = w.opcode(Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.NOT)
    b = w.builder
    if opcode is Opcode.NOT:
        return w.keep(w.result(b.unary(opcode, x.hlo), math.inf))
    return w.keep(w.result(b.binary(opcode, x.hlo, w.of(x.dtype, x.dims).hlo), math.inf))


@operation(2, Opcode.COMPARE)
def compare(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.stable and v.dtype is not PRED)
    if x is None:
        return None
    y = w.pick(lambda v: v.stable and v.dtype is x.dtype and v.dims == x.dims) or x
    return w.keep(w.result(w.builder.compare(x.hlo, y.hlo, w.choose(_DIRECTIONS)), 1.0))


@operation(3, Opcode.SELECT)
def select(w: Writer) -> Value | None:
    """Write a select by a predicate of the same sizes, or by a scalar one."""
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    p = w.of(PRED, () if w.chance(0.15) else x.dims)
    return w.keep(w.result(w.builder.select(p.hlo, x.hlo, y.hlo), max(x.bound, y.bound), x, y))


@operation(1, Opcode.CLAMP)
def clamp(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.is_float or v.dtype is S32)
    if x is None:
        return None
    b = w.builder
    hlo = b.clamp(b.scalar(x.dtype, -w.integer(0, 3)), x.hlo, b.scalar(x.dtype, w.integer(0, 3)))
    return w.keep(w.result(hlo, 3.0, x))


@operation(3, Opcode.CONVERT)
def convert(w: Writer) -> Value | None:
    x = w.pick()
    if x is None:
        return None
    to: PrimitiveType = w.choose((F32, F32, BF16, F16, S32, S32, S8, U8, PRED))
    if to is x.dtype:
        to = F32
    if to in (F32, BF16, F16):
        if not x.is_float:
            x = w.small(x, 8) if x.dtype is not PRED else x
        bound = min(x.bound, 1.0) if x.dtype is PRED else x.bound
        whole, stable = x.whole, x.stable
    elif x.is_float:
        # The result depends on rounding, so that only stable values which fit the integer are converted.
        if not x.stable or (to in (S8, U8) and not x.whole):
            return None
        bound, whole, stable = math.inf, True, True
        if to is PRED and not x.whole:
            return None
    else:
        bound, whole, stable = math.inf, True, True
    if to is PRED:
        bound = 1.0
    return w.keep(Value(w.builder.convert(x.hlo, to), bound, whole, stable))


@operation(0.5, Opcode.COMPLEX, Opcode.REAL, Opcode.IMAG)
def through_complex(w: Writer) -> Value | None:
    """Write the real part of complex(x, y) * complex(y, x), which is 0 but for rounding, or the imaginary part."""
    x = w.pick(lambda v: v.dtype is F32)
    if x is None:
        return None
    y = w.of(F32, x.dims)
    b = w.builder
    product = b.multiply(
        b.create(Opcode.COMPLEX, (x.hlo, y.hlo)), b.create(Opcode.COMPLEX, (y.hlo, x.hlo))
    )
    bound = 2 * x.bound * y.bound + x.bound**2 + y.bound**2
    hlo = b.create(w.opcode(Opcode.REAL, Opcode.IMAG), (product,))
    return w.keep(w.result(hlo, bound, x, y))


@operation(0.5, Opcode.STOCHASTIC_CONVERT)
def stochastic_convert(w: Writer) -> Value | None:
    """Write a rounding up or down by random bits, which are an operand."""
    x = w.pick(lambda v: v.dtype is F32 and v.stable)
    if x is None:
        return None
    b = w.builder
    half = b.multiply(x.hlo, b.broadcast_scalar(b.scalar(F32, 0.375), x.dims))
    bits = w.of(U32, x.dims)
    hlo = b.create(Opcode.STOCHASTIC_CONVERT, (half, bits.hlo), shape=ArrayShape(S32, x.dims))
    return w.keep(Value(hlo, x.bound + 1))
