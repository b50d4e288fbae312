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
_PRECISION = 2600
_NUDGE = mpf(2) ** -2400
#: Beyond this exp overflows, or turns so often that no digits of the angle are left.
_HUGE = 300


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


def logistic(z: complex) -> complex:
    """Return the value at a number that is not finite: 0 far to the left, 1 far to the right."""
    if math.isinf(z.real):
        return complex(z.real > 0)
    return complex(math.nan, math.nan)


#: Functions of numbers that are not finite: cmath's, and for the others what then holds.
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
    "exponential-minus-one": lambda z: cmath.exp(z) - 1,
    "log-plus-one": lambda z: cmath.log(complex(1 + z.real, z.imag)),
    "logistic": logistic,
    "rsqrt": lambda z: complex(math.nan, 0) if cmath.isnan(z) and not cmath.isinf(z) else 0j,
    "sign": lambda z: complex(math.nan, math.nan),
}


@cache
def unary(opcode: str, real: str, imag: str) -> mpc | complex | None:
    """Return the value at the number with these parts (as repr); None where no definition fixes it."""
    z = complex(float(real), float(imag))
    if cmath.isfinite(z):
        if z in POLES.get(opcode, ()):
            return None
        with mp.workprec(_PRECISION):
            return FUNCTIONS[opcode](nudged(z))
    try:
        return CMATH[opcode](z)
    except ValueError:  # C raises the flag of an invalid operation and returns NaN
        return complex(math.nan, math.nan)


def multiply_by_parts(x: complex, y: complex) -> complex:
    """Return the product by parts; NaN where neither part is finite.

    C leaves it to a switch whether such a product is infinite.
    """
    product = complex(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)
    some = math.isfinite(product.real) or math.isfinite(product.imag)
    return product if some else complex(math.nan, math.nan)


#: Operations on operands that are not finite.
BY_PARTS: dict[str, Callable[[complex, complex], complex]] = {
    "add": lambda x, y: complex(x.real + y.real, x.imag + y.imag),
    "subtract": lambda x, y: complex(x.real - y.real, x.imag - y.imag),
    "multiply": multiply_by_parts,
}


def binary(opcode: str, x: complex, y: complex) -> mpc | complex | None:
    """Return the value; None where it is undefined or on a branch point."""
    if not (cmath.isfinite(x) and cmath.isfinite(y)):
        return BY_PARTS[opcode](x, y)
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
                if x == 0 or x.imag == 0 or abs(b * mpmath.log(a)) > _HUGE:
                    return None  # neither the turns of a huge angle nor exp(inf) mean anything
                return mpmath.power(a, b)
            case _:  # atan2(y, x) = -i log((x + i y) / sqrt(x^2 + y^2))
                root = b * b + a * a
                sides = (abs(a) + abs(b)) ** 2 * mpf(10) ** -30
                if abs(root) <= sides or abs(root.imag) <= sides:
                    return None
                angle = mpc(0, -1) * mpmath.log((b + mpc(0, 1) * a) / mpmath.sqrt(root))
                return (
                    angle if abs(angle.real) < 3.1 else None
                )  # at the cut rounding decides the sign


def size(z: complex) -> mpf | float:
    """Return |z|, which is infinite where a part is infinite."""
    if not cmath.isfinite(z) or z == 0:
        return abs(z)
    with mp.workprec(400):
        return mpmath.hypot(mpf(z.real), mpf(z.imag))
