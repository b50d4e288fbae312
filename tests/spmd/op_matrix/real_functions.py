"""Elementwise functions of real numbers, one element at a time: exactly (Fraction) or to 40 digits (mpmath).

Special values follow IEEE 754 and the C standard's annex F, which XLA's operation semantics refer to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
from mpmath import mp, mpf

from tests.spmd.op_matrix.formats import (
    INF,
    NAN,
    FloatFormat,
    Real,
    exponent_of,
)

DIGITS = 40
mp.dps = DIGITS

RealFunction = Callable[..., Real]


def finite(*xs: float) -> bool:
    return all(math.isfinite(x) for x in xs)


def signed_zero(exact: Fraction, sign: float) -> Real:
    return math.copysign(0.0, sign) if exact == 0 else exact


# ---- arithmetic
def add(x: float, y: float) -> Real:
    if not finite(x, y):
        return x + y
    return signed_zero(Fraction(x) + Fraction(y), x + y)


def multiply(x: float, y: float) -> Real:
    if not finite(x, y):
        return x * y
    return signed_zero(Fraction(x) * Fraction(y), math.copysign(1, x) * math.copysign(1, y))


def divide(x: float, y: float) -> Real:
    sign = math.copysign(1, x) * math.copysign(1, y)
    if x != x or y != y or (x == 0 and y == 0) or (not finite(x) and not finite(y)):
        return NAN
    if y == 0 or not finite(x):
        return sign * INF
    return signed_zero(Fraction(0) if not finite(y) else Fraction(x) / Fraction(y), sign)


def remainder(x: float, y: float) -> Real:
    """Return the remainder, with the sign of the dividend."""
    if x != x or y != y or not finite(x) or y == 0:
        return NAN
    return math.fmod(x, y)  # exact


def maximum(x: float, y: float) -> Real:
    return NAN if x != x or y != y else max(x, y)


def minimum(x: float, y: float) -> Real:
    return NAN if x != x or y != y else min(x, y)


def power(x: float, y: float) -> Real:
    if y == 0 or x == 1:
        return 1.0
    if x != x or y != y:
        return NAN
    odd = finite(y) and y == math.floor(y) and int(y) % 2 == 1
    sign = -1.0 if odd and math.copysign(1, x) < 0 else 1.0
    if not finite(y):
        grows = (abs(x) > 1) == (y > 0)
        return 1.0 if abs(x) == 1 else INF if grows else 0.0
    if x == 0 or not finite(x):
        return sign * (INF if (x != 0) == (y > 0) else 0.0)
    if x < 0 and y != math.floor(y):
        return NAN
    return sign * mp.power(mpf(abs(x)), mpf(y))


def atan2(y: float, x: float) -> Real:
    if not finite(x, y) or x == 0 or y == 0:
        return math.atan2(y, x)
    return mpmath.atan2(mpf(y), mpf(x))


BINARY: dict[str, RealFunction] = {
    "add": add,
    "subtract": lambda x, y: add(x, -y),
    "multiply": multiply,
    "divide": divide,
    "remainder": remainder,
    "maximum": maximum,
    "minimum": minimum,
    "power": power,
    "atan2": atan2,
}


# ---- exact functions of one number
def to_integer(rule: Callable[[Fraction], int]) -> RealFunction:
    return lambda x: signed_zero(Fraction(rule(Fraction(x))), x) if finite(x) else x


def half_away(x: Fraction) -> int:
    return int(math.copysign(math.floor(abs(x) + Fraction(1, 2)), x))


def sign(x: float) -> Real:
    return x if x != x or x == 0 else math.copysign(1.0, x)


EXACT: dict[str, RealFunction] = {
    "abs": abs,
    "negate": lambda x: -x,
    "sign": sign,
    "real": lambda x: x,
    "imag": lambda x: 0.0,
    "ceil": to_integer(math.ceil),
    "floor": to_integer(math.floor),
    "round-nearest-afz": to_integer(half_away),
    "round-nearest-even": to_integer(round),
}


# ---- functions to many digits
def odd(f: Callable[[mpf], mpf]) -> RealFunction:
    """f(-x) = -f(x), so f(-0) = -0."""
    return lambda x: x if x == 0 or x != x else real(f, x)


def plain(f: Callable[[mpf], mpf]) -> RealFunction:
    return lambda x: real(f, x)


def real(f: Callable[[mpf], mpf], x: float) -> Real:
    """f(x), NaN where it is not a real number, a float where it is zero or infinite."""
    if x != x:
        return NAN
    with mp.workdps(DIGITS):
        y = f(mpf(x))
    if isinstance(y, mpmath.mpc):
        if y.imag != 0:
            return NAN
        y = y.real
    return float(y) if mpmath.isnan(y) or mpmath.isinf(y) or y == 0 else y


def cbrt(x: mpf) -> mpf:
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


def oscillating(f: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """sin, cos, tan: reduced with as many digits as the argument is large; no limit at infinity."""

    def g(x: mpf) -> mpf:
        if mpmath.isinf(x):
            return mp.nan
        with mp.workprec(160 + max(0, int(mpmath.frexp(x)[1]) * (x != 0))):
            return f(x)

    return g


def carefully(f: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """Return ``f`` with enough digits for f(x) - f(0) where x is tiny."""

    def g(x: mpf) -> mpf:
        small = -int(mpmath.frexp(x)[1]) if mpmath.isfinite(x) and x != 0 else 0
        with mp.workprec(160 + 2 * max(0, small)):
            return f(x)

    return g


def saturating(f: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """exp and its kin of huge arguments: what any format rounds to infinity or 0 anyway, without a huge exponent."""
    return lambda x: f(max(min(x, mpf(2000)), mpf(-2000)) if mpmath.isfinite(x) else x)


def rsqrt(x: float) -> Real:
    if x == 0:
        return math.copysign(INF, x)
    if x == INF:
        return 0.0
    return real(lambda v: 1 / mpmath.sqrt(v) if v > 0 else mp.nan, x)


def acosh(x: mpf) -> mpf:
    return mpmath.acosh(x) if x >= 1 else mp.nan


def logistic(x: mpf) -> mpf:
    return mpf(1) if x == mp.inf else 1 / (1 + mpmath.exp(-x))


def log1p(x: mpf) -> mpf:
    return (
        mp.inf if x == mp.inf else mp.nan if x < -1 else -mp.inf if x == -1 else mpmath.log(1 + x)
    )


def atanh(x: mpf) -> mpf:
    return mp.nan if abs(x) > 1 else mpmath.sign(x) * mp.inf if abs(x) == 1 else mpmath.atanh(x)


TRANSCENDENTAL: dict[str, RealFunction] = {
    "acos": plain(lambda x: mpmath.acos(x) if abs(x) <= 1 else mp.nan),
    "acosh": plain(acosh),
    "asin": odd(lambda x: mpmath.asin(x) if abs(x) <= 1 else mp.nan),
    "asinh": odd(carefully(mpmath.asinh)),
    "atanh": odd(carefully(atanh)),
    "cbrt": odd(cbrt),
    "cosh": plain(saturating(mpmath.cosh)),
    "cosine": plain(oscillating(mpmath.cos)),
    "erf": odd(mpmath.erf),
    "exponential": plain(saturating(mpmath.exp)),
    "exponential-minus-one": odd(saturating(mpmath.expm1)),
    "log": plain(lambda x: mpmath.log(x) if x >= 0 else mp.nan),
    "log-plus-one": odd(carefully(log1p)),
    "logistic": plain(saturating(logistic)),
    "rsqrt": rsqrt,
    "sine": odd(oscillating(mpmath.sin)),
    "sinh": odd(carefully(saturating(mpmath.sinh))),
    "sqrt": odd(lambda x: mpmath.sqrt(x) if x >= 0 else mp.nan),
    "tan": odd(oscillating(mpmath.tan)),
    "tanh": odd(carefully(saturating(mpmath.tanh))),
}


def round_to_bits(x: float, form: FloatFormat, exponent_bits: int, mantissa_bits: int) -> Real:
    """reduce-precision of an element of ``form``: nearest even at ``mantissa_bits`` after the leading bit.

    With fewer exponent bits than ``form`` what is then too large is infinite, and below the normal numbers zero. Denormals
    of ``form`` are rounded at the place where their leading bit would stand in a normal number.
    """
    if not finite(x) or x == 0:
        return INF if x != x and mantissa_bits == 0 else x
    exact = Fraction(x)
    leading = max(exponent_of(exact), form.least_exponent)
    unit = Fraction(2) ** (leading - min(mantissa_bits, form.mantissa))
    rounded = signed_zero(round(exact / unit) * unit, x)
    if exponent_bits >= form.exponent or rounded == 0:
        return rounded
    bias = (1 << exponent_bits - 1) - 1
    exponent = exponent_of(rounded)
    if exponent > bias:
        return math.copysign(INF, x)
    return math.copysign(0.0, x) if exponent <= -bias else rounded
