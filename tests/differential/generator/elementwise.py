"""Elementwise operations over several types, conversions, selects and compares."""

from __future__ import annotations

import math

from spmd.hlo import Opcode
from spmd.shape import PrimitiveType
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


@operation(6)
def arithmetic(w: Writer) -> Value | None:
    """add, subtract, multiply, maximum, minimum of two values of one shape."""
    x = w.pick(lambda v: v.dtype is not PRED)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    opcode = w.choose(
        (Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY, Opcode.MAXIMUM, Opcode.MINIMUM)
    )
    if opcode is Opcode.MULTIPLY:
        bound = x.bound * y.bound if x.bound and y.bound else 0.0
    elif opcode in (Opcode.MAXIMUM, Opcode.MINIMUM):
        bound = max(x.bound, y.bound)
    else:
        bound = x.bound + y.bound
    if not x.is_float:
        bound = math.inf
    return w.keep(w.result(w.builder.binary(opcode, x.hlo, y.hlo), bound, x, y))


@operation(2)
def unary(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.is_float or v.dtype in (S32, S8))
    if x is None:
        return None
    opcode = w.choose((Opcode.NEGATE, Opcode.ABS, Opcode.SIGN))
    bound = 1.0 if opcode is Opcode.SIGN and x.stable else x.bound
    if opcode is Opcode.SIGN and not x.stable:
        opcode = Opcode.NEGATE
    return w.keep(w.result(w.builder.unary(opcode, x.hlo), bound, x))


@operation(2)
def transcendental(w: Writer) -> Value | None:
    """Functions whose last bit may depend on where an element lies: the result is no longer stable."""
    x = w.pick(lambda v: v.is_float)
    if x is None:
        return None
    b = w.builder
    opcode = w.choose(
        (
            Opcode.TANH,
            Opcode.LOGISTIC,
            Opcode.COSINE,
            Opcode.EXPONENTIAL,
            Opcode.LOG_PLUS_ONE,
            Opcode.SQRT,
            Opcode.ERF,
        )
    )
    argument = x.hlo
    if opcode in (Opcode.LOG_PLUS_ONE, Opcode.SQRT):
        argument = b.unary(Opcode.ABS, argument)
        if opcode is Opcode.SQRT:
            argument = b.add(argument, b.broadcast_scalar(b.scalar(x.dtype, 1), x.dims))
    elif opcode is Opcode.EXPONENTIAL:
        argument = b.clamp(b.scalar(x.dtype, -3), argument, b.scalar(x.dtype, 3))
    bound = 21.0 if opcode is Opcode.EXPONENTIAL else max(1.0, math.sqrt(x.bound + 1))
    return w.keep(Value(b.unary(opcode, argument), bound, whole=False, stable=False))


@operation(1)
def quotient(w: Writer) -> Value | None:
    """x / (|y| + 1)"""
    x = w.pick(lambda v: v.is_float)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    b = w.builder
    one = b.broadcast_scalar(b.scalar(x.dtype, 1), x.dims)
    hlo = b.divide(x.hlo, b.add(b.unary(Opcode.ABS, y.hlo), one))
    return w.keep(Value(hlo, x.bound, whole=False, stable=x.stable and y.stable))


@operation(1)
def integer_division(w: Writer) -> Value | None:
    """x / (y | 1) and the remainder."""
    x = w.pick(lambda v: v.dtype in (S32, U32))
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    b = w.builder
    odd = b.logical_or(y.hlo, b.broadcast_scalar(b.scalar(x.dtype, 1), x.dims))
    opcode = w.choose((Opcode.DIVIDE, Opcode.REMAINDER))
    return w.keep(w.result(b.binary(opcode, x.hlo, odd), math.inf))


@operation(1)
def bitwise(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.dtype in (PRED, S32, U8, U32))
    if x is None:
        return None
    opcode = w.choose((Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.NOT))
    b = w.builder
    if opcode is Opcode.NOT:
        return w.keep(w.result(b.unary(opcode, x.hlo), math.inf))
    return w.keep(w.result(b.binary(opcode, x.hlo, w.of(x.dtype, x.dims).hlo), math.inf))


@operation(2)
def compare(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.stable and v.dtype is not PRED)
    if x is None:
        return None
    y = w.pick(lambda v: v.stable and v.dtype is x.dtype and v.dims == x.dims) or x
    return w.keep(w.result(w.builder.compare(x.hlo, y.hlo, w.choose(_DIRECTIONS)), 1.0))


@operation(3)
def select(w: Writer) -> Value | None:
    """By a predicate of the same sizes, or by a scalar one."""
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    y = w.of(x.dtype, x.dims)
    p = w.of(PRED, () if w.chance(0.15) else x.dims)
    return w.keep(w.result(w.builder.select(p.hlo, x.hlo, y.hlo), max(x.bound, y.bound), x, y))


@operation(1)
def clamp(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.is_float or v.dtype is S32)
    if x is None:
        return None
    b = w.builder
    hlo = b.clamp(b.scalar(x.dtype, -w.integer(0, 3)), x.hlo, b.scalar(x.dtype, w.integer(0, 3)))
    return w.keep(w.result(hlo, 3.0, x))


@operation(3)
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
        # Rounding decides: only a stable value, and one that fits the integer.
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


@operation(0.5)
def through_complex(w: Writer) -> Value | None:
    """real(complex(x, y) * complex(y, x)), which is 0 but for rounding, or its imaginary part."""
    x = w.pick(lambda v: v.dtype is F32)
    if x is None:
        return None
    y = w.of(F32, x.dims)
    b = w.builder
    product = b.multiply(
        b.create(Opcode.COMPLEX, (x.hlo, y.hlo)), b.create(Opcode.COMPLEX, (y.hlo, x.hlo))
    )
    bound = 2 * x.bound * y.bound + x.bound**2 + y.bound**2
    hlo = b.create(w.choose((Opcode.REAL, Opcode.IMAG)), (product,))
    return w.keep(w.result(hlo, bound, x, y))
