"""Building blocks of functions of several families: polynomials, powers of two, and sums of two numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.codegen.elements.builder import Float, Int, Real
from runtime.codegen.elements.formats import FloatFormat


def polynomial(coefficients: Sequence[Real], x: Float) -> Float:
    """Compute the sum of coefficients[k] x^k by Horner's rule."""
    last = coefficients[-1]
    total = last if isinstance(last, Float) else x.constant(last)
    for coefficient in reversed(coefficients[:-1]):
        total = total.times_plus(x, coefficient)
    return total


def nearest_integer(x: Float) -> tuple[Float, Int]:
    """Round |x| < 2^(mantissa - 2) to the nearest integer. Returns the integer as a float and as an integer.

    In the sum of x and 1.5 * 2^mantissa the last bit counts ones, so the sum is rounded to an integer. The results for
    other x are arbitrary.
    """
    magic = 1.5 * 2.0**x.format.mantissa
    shifted = x + magic
    return shifted - magic, shifted.bits() - x.format.bits_of(magic)


def float_of_small(i: Int, target: FloatFormat) -> Float:
    """Convert an integer |i| < 2^(mantissa - 1) to a float of the same width, by the method of ``nearest_integer``."""
    magic = 1.5 * 2.0**target.mantissa
    return (i + target.bits_of(magic)).as_float(target) - magic


def power_of_two(exponent: Int, target: FloatFormat) -> Float:
    """Compute 2^exponent, which must be a normal number of ``target``."""
    return ((exponent + target.bias) << target.mantissa).as_float(target)


def scaled(x: Float, exponent: Int) -> Float:
    """Compute x * 2^exponent for a normal x. The result is rounded once if it is denormal.

    The exponent may be up to twice as large as the exponents of the format.
    """
    if x.code.instructions.scales:
        return x.scaled(exponent)
    half = exponent.signed_shift(1)
    return x * power_of_two(half, x.format) * power_of_two(exponent - half, x.format)


def clamped(x: Float, low: float, high: float) -> Float:
    """Clamp x to [low, high]. A nan stays nan."""
    x = (x > high).choose(x.constant(high), x)
    return (x < low).choose(x.constant(low), x)


def split_normal(x: Float) -> tuple[Float, Int]:
    """Split a positive normal number as x = m * 2^e with sqrt(1/2) <= m < sqrt(2). Returns (m, e).

    The results for other x are arbitrary.
    """
    fmt = x.format
    root = fmt.bits_of(math.sqrt(0.5))
    above = x.bits() - root
    mantissa = (above & ((1 << fmt.mantissa) - 1)) + root
    return mantissa.as_float(fmt), above.signed_shift(fmt.mantissa)


def split_positive(x: Float) -> tuple[Float, Int]:
    """Split a positive number, which may be denormal, as ``split_normal`` does."""
    fmt = x.format
    shift = fmt.mantissa + 1
    small = x < fmt.least_normal
    m, e = split_normal(small.choose(x * 2.0**shift, x))
    return m, e - small.select(e.constant(shift), 0)


def two_sum(a: Float, b: Float) -> tuple[Float, Float]:
    """Return the rounded sum and its error (D. E. Knuth, The Art of Computer Programming 2, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fast_two_sum(a: Float, b: Float) -> tuple[Float, Float]:
    """Return the rounded sum and its error, provided that |a| >= |b| or a is zero (T. J. Dekker, 1971)."""
    total = a + b
    return total, b - (total - a)


def with_flipped_sign(x: Float, negative: Int) -> Float:
    """Return -x if the lowest bit of ``negative`` is set, else x."""
    fmt = x.format
    return (x.bits() ^ (negative << (fmt.bits - 1))).as_float(fmt)


def product_error(x: Float, factor: Float, product: Float) -> Float:
    """Compute x * factor - product, the error of the rounded ``product``. It is exact unless it underflows.

    Without a fused multiply-add, the numbers are split as by T. J. Dekker ("A floating-point technique for extending
    the available precision", 1971), for which no factor may exceed 2^(emax - mantissa / 2 - 1).
    """
    if x.code.instructions.fused:
        return x.fused_times_plus(factor, -product)
    (a, b), (c, d) = _halves(x), _halves(factor)
    return ((a * c - product) + a * d + b * c) + b * d


def _halves(x: Float) -> tuple[Float, Float]:
    """Split x into two numbers with half as many digits, whose sum is x."""
    scaled = x * (2.0 ** ((x.format.mantissa + 2) // 2) + 1)
    high = scaled - (scaled - x)
    return high, x - high


def least(a: Int, b: int) -> Int:
    """Return the smaller of two signed numbers by a compare and a select."""
    return (a < b).select(a, b)


def greatest(a: Int, b: int) -> Int:
    """Return the larger of two signed numbers by a compare and a select."""
    return (a > b).select(a, b)
