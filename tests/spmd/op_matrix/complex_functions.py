"""Functions of complex numbers: to many digits where all is finite, Python's cmath (C's annex G) where it is not.

The sign of a zero part says on which side of a branch cut a number lies. mpmath has no signed zeros, so a zero part is
replaced by a number so small that it can decide nothing but the side.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from functools import cache

import mpmath
from mpmath import mp, mpc, mpf

#: Precision in bits and the stand-in for a zero part: 1 + NUDGE keeps digits to spare.
_PRECISION = 1300
_NUDGE = mpf(2) ** -1100


def nudged(z: complex) -> mpc:
    def part(x: float) -> mpf:
        return mpf(x) if x != 0 else mpf(math.copysign(1, x)) * _NUDGE

    return mpc(part(z.real), part(z.imag))


FUNCTIONS: dict[str, Callable[[mpc], mpc]] = {
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atanh": mpmath.atanh,
    "cosh": mpmath.cosh,
    "cosine": mpmath.cos,
    "exponential": mpmath.exp,
    "exponential-minus-one": lambda z: mpmath.exp(z) - 1,
    "log": mpmath.log,
    "log-plus-one": lambda z: mpmath.log(1 + z),
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "sine": mpmath.sin,
    "sinh": mpmath.sinh,
    "sqrt": mpmath.sqrt,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
    "sign": lambda z: z / abs(z),
    "negate": lambda z: -z,
}

#: Where a function grows without bound: C's annex G and limits from different sides disagree.
POLES = {"log": (0,), "rsqrt": (0,), "sign": (0,), "atanh": (1, -1), "log-plus-one": (-1,)}

#: What cmath calls those it has.
CMATH: dict[str, Callable[[complex], complex]] = {
    "acos": cmath.acos,
    "acosh": cmath.acosh,
    "asin": cmath.asin,
    "asinh": cmath.asinh,
    "atanh": cmath.atanh,
    "cosh": cmath.cosh,
    "cosine": cmath.cos,
    "exponential": cmath.exp,
    "log": cmath.log,
    "sine": cmath.sin,
    "sinh": cmath.sinh,
    "sqrt": cmath.sqrt,
    "tan": cmath.tan,
    "tanh": cmath.tanh,
    "negate": lambda z: -z,
}


@cache
def unary(opcode: str, real: str, imag: str) -> mpc | complex | None:
    """The value at the number with these parts (as repr); None where no definition fixes it."""
    z = complex(float(real), float(imag))
    if cmath.isfinite(z):
        if z in POLES.get(opcode, ()):
            return None
        with mp.workprec(_PRECISION):
            return FUNCTIONS[opcode](nudged(z))
    if opcode not in CMATH:
        return None
    try:
        return CMATH[opcode](z)
    except (
        ValueError,
        OverflowError,
    ):  # C returns a value and raises a flag; Python gives the flag alone
        return None


def binary(opcode: str, x: complex, y: complex) -> mpc | None:
    """Finite operands; None where it is undefined or on a branch point."""
    with mp.workprec(400):
        a, b = mpc(x.real, x.imag), mpc(y.real, y.imag)
        match opcode:
            case "add":
                return a + b
            case "subtract":
                return a - b
            case "multiply":
                return a * b
            case "divide":
                return None if y == 0 else a / b
            case "power":
                return None if x == 0 or x.imag == 0 else mpmath.power(a, b)
            case _:  # atan2(y, x) = -i log((x + i y) / sqrt(x^2 + y^2))
                root = b * b + a * a
                if abs(root) < mpf(10) ** -30 or root.imag == 0:
                    return None
                angle = mpc(0, -1) * mpmath.log((b + mpc(0, 1) * a) / mpmath.sqrt(root))
                return (
                    angle if abs(angle.real) < 3.1 else None
                )  # at the cut rounding decides the sign
