"""Number formats from their definitions: which value each bit pattern has, and which pattern a number rounds to.

Nothing here asks NumPy or ml_dtypes: exponents, mantissas and the flavours of infinity and NaN are written out (IEEE
754; the OCP 8-bit and microscaling papers). Every value of every format is a Python float, so exact arithmetic is
Fraction's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from mpmath import mpf

INF, NAN = math.inf, math.nan
#: A binary exponent that no format comes near.
_FAR = 3000
#: A real number known exactly or to many digits; a float where it is special (zero with its sign, infinite, NaN).
Real: TypeAlias = "float | Fraction | mpf"


@dataclass(frozen=True)
class FloatFormat:
    """A format of floating-point numbers.

    ``flavour`` is ieee (infinities, NaNs), fn (one NaN, no infinity), fnuz (also no -0), finite, or unsigned (2**k,
    NaN).
    """

    exponent: int
    mantissa: int
    bias: int
    flavour: str = "ieee"

    @property
    def bits(self) -> int:
        return self.exponent + self.mantissa + (self.flavour != "unsigned")

    @property
    def least_exponent(self) -> int:
        """The least exponent of normal numbers, which is that of denormal numbers, too."""
        return (0 if self.flavour == "unsigned" else 1) - self.bias

    @property
    def largest(self) -> Fraction:
        """The largest finite value."""
        top = (1 << self.exponent) - 1 - (self.flavour in ("ieee", "unsigned")) - self.bias
        steps = (2 << self.mantissa) - 1 - (self.flavour == "fn")
        return steps * Fraction(2) ** (top - self.mantissa)

    def decode(self, pattern: int) -> float:
        field = pattern >> self.mantissa & ((1 << self.exponent) - 1)
        steps = pattern & ((1 << self.mantissa) - 1)
        sign = -1.0 if pattern >> (self.exponent + self.mantissa) else 1.0
        full = field == (1 << self.exponent) - 1
        if self.flavour == "unsigned":
            return NAN if full else math.ldexp(1.0, field - self.bias)
        if self.flavour == "ieee" and full:
            return NAN if steps else sign * INF
        if self.flavour == "fn" and full and steps == (1 << self.mantissa) - 1:
            return NAN
        if self.flavour == "fnuz" and pattern == 1 << (self.bits - 1):
            return NAN
        if field == 0:
            return sign * math.ldexp(steps, 1 - self.bias - self.mantissa)
        return sign * math.ldexp((1 << self.mantissa) + steps, field - self.bias - self.mantissa)

    def ulp(self, x: Real) -> Fraction:
        """Return the distance of neighbours at the finite number ``x``."""
        return Fraction(2) ** (max(exponent_of(x), self.least_exponent) - self.mantissa)

    def round(self, x: Real) -> float:
        """Return the nearest value, ties to even."""
        if isinstance(x, float) and (x != x or x in (INF, -INF) or x == 0):
            return self._special(x)
        exact = to_fraction(x)
        unit = self.ulp(exact)
        rounded = round(exact / unit) * unit  # Fraction rounds ties to even
        if self.flavour == "unsigned":
            return self._power_of_two(exact)
        if abs(rounded) > self.largest:
            return self._special(INF if exact > 0 else -INF)
        if rounded == 0:
            return self._special(0.0 if exact > 0 else -0.0)
        return float(rounded)

    def _power_of_two(self, exact: Fraction) -> float:
        if exact <= 0:
            return NAN
        low = Fraction(2) ** exponent_of(exact)
        rounded = low if exact - low < 2 * low - exact else 2 * low  # a tie goes up
        if rounded > self.largest:
            return NAN
        return float(max(rounded, Fraction(2) ** self.least_exponent))

    def _special(self, x: float) -> float:
        if self.flavour == "unsigned":
            return NAN
        if x == 0:
            return 0.0 if self.flavour == "fnuz" else x
        if x != x:
            return x
        if self.flavour == "finite":
            return math.copysign(float(self.largest), x)
        return x if self.flavour == "ieee" else NAN


FLOATS: dict[str, FloatFormat] = {
    "f4e2m1fn": FloatFormat(2, 1, 1, "finite"),
    "f6e2m3fn": FloatFormat(2, 3, 1, "finite"),
    "f6e3m2fn": FloatFormat(3, 2, 3, "finite"),
    "f8e3m4": FloatFormat(3, 4, 3),
    "f8e4m3": FloatFormat(4, 3, 7),
    "f8e4m3fn": FloatFormat(4, 3, 7, "fn"),
    "f8e4m3b11fnuz": FloatFormat(4, 3, 11, "fnuz"),
    "f8e4m3fnuz": FloatFormat(4, 3, 8, "fnuz"),
    "f8e5m2": FloatFormat(5, 2, 15),
    "f8e5m2fnuz": FloatFormat(5, 2, 16, "fnuz"),
    "f8e8m0fnu": FloatFormat(8, 0, 127, "unsigned"),
    "f16": FloatFormat(5, 10, 15),
    "bf16": FloatFormat(8, 7, 127),
    "f32": FloatFormat(8, 23, 127),
    "f64": FloatFormat(11, 52, 1023),
}
#: The part type of each complex type.
COMPLEX = {"c64": "f32", "c128": "f64"}
SIGNED = {f"s{n}": n for n in (1, 2, 4, 8, 16, 32, 64)}
UNSIGNED = {f"u{n}": n for n in (1, 2, 4, 8, 16, 32, 64)}
INTEGERS = {**SIGNED, **UNSIGNED}


def to_fraction(x: Real) -> Fraction:
    """Return the finite number ``x`` exactly."""
    if isinstance(x, (int, float, Fraction)):
        return Fraction(x)
    sign, mantissa, exponent, bits = x._mpf_
    # Far beyond every format all magnitudes are alike, and the exact ones would not fit into memory.
    exponent = max(-_FAR, min(_FAR, exponent + bits)) - bits
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


def exponent_of(x: Real) -> int:
    """Return e with 2**e <= |x| < 2**(e + 1); very small for 0."""
    exact = abs(to_fraction(x))
    if exact == 0:
        return -(10**6)
    guess = exact.numerator.bit_length() - exact.denominator.bit_length()
    return guess if exact >= Fraction(2) ** guess else guess - 1


def bounds(kind: str) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    bits = INTEGERS[kind]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind in SIGNED else (0, (1 << bits) - 1)


def wrap(x: int, kind: str) -> int:
    """Return ``x`` modulo 2**bits in the range of the type."""
    bits, (low, _) = INTEGERS[kind], bounds(kind)
    return (x - low) % (1 << bits) + low


def all_values(kind: str) -> Iterator[float]:
    """Yield every value of a format of at most 8 bits, one per bit pattern."""
    definition = FLOATS[kind]
    return (definition.decode(pattern) for pattern in range(1 << definition.bits))
