"""Powers and roots: the operations power, rsqrt and cbrt."""

from __future__ import annotations

import math

from runtime.codegen.elements import constants
from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.common import (
    clamped,
    fast_two_sum,
    float_of_small,
    nearest_integer,
    polynomial,
    power_of_two,
    product_error,
    split_positive,
)
from runtime.codegen.elements.exponential import exp_between
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.logarithm import log_short
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from spmd.hlo import Opcode


@FLOAT_FUNCTIONS.register((Opcode.RSQRT, F32), (Opcode.RSQRT, F64))
def rsqrt(x: Float) -> Float:
    return 1.0 / x.sqrt()


@FLOAT_FUNCTIONS.register((Opcode.CBRT, F64))
def cbrt(x: Float) -> Float:
    """Compute the cube root by Halley's iteration from an estimate, with a last step of Newton's iteration.

    Before the last step the estimate t is cut to 26 bits, so that t^2 is exact and x / t^2 - t has a small error.
    """
    size = x.abs()
    m, e = split_positive(size)
    # m 2^e = (m 2^(e - 3 k)) 2^(3 k) with e - 3 k in 0 .. 2, so the argument lies in sqrt(1/2) .. 4
    # sqrt(2).
    k = (((e + 3 * 512) * 21846) >> 16) - 512
    m = m * power_of_two(e - k * 3, F64)
    # The estimate (i + 2 bias) / 3 of the bits interpolates between powers of two, within 6 %.
    third = ((m.bits() >> 32) * 1431655766) >> 32
    t = ((third + (2 * F64.bias << 20) // 3) << 32).as_float(F64)
    for _ in range(2):
        cube = t * t * t
        t = t * (cube + m * 2.0) / (cube * 2.0 + m)
    t = ((t.bits() + (1 << 25)) & -(1 << 26)).as_float(F64)
    ratio = m / (t * t)
    t = t + t * ((ratio - t) / (t + t + ratio))
    result = (t * power_of_two(k, F64)).with_sign_of(x)
    itself = size.equals(0.0) | size.equals(math.inf) | x.is_nan()
    return itself.choose(x, result)


@FLOAT_FUNCTIONS.register((Opcode.POWER, F32))
def power_f32(x: Float, y: Float) -> Float:
    """Compute 2^(y log2|x|) in f64, which has enough digits. Special cases are decided in f32."""
    size = x.abs()
    log2 = log_short(size.to(F64)) * (1 / math.log(2))
    product = clamped(clamped(y, -(2.0**100), 2.0**100).to(F64) * log2, -1000.0, 1000.0)
    n, integer = nearest_integer(product)
    result = polynomial(constants.EXP2_SHORT_F64, product - n) * power_of_two(integer, F64)
    return _signed(x, y, _at_the_ends(size, y, result.to(F32)))


def _at_the_ends(size: Float, y: Float, result: Float) -> Float:
    """Return ``result``, or the power of |x| = ``size`` if that is 0, infinite or nan."""
    zero = size.equals(0.0)
    vanishes = zero ^ (y < 0.0)
    limit = vanishes.choose(size.constant(0.0), math.inf)
    result = (zero | size.equals(math.inf)).choose(limit, result)
    return (size.is_nan() | y.is_nan()).choose(size.constant(math.nan), result)


@FLOAT_FUNCTIONS.register((Opcode.POWER, F64))
def power_f64(x: Float, y: Float) -> Float:
    """Compute exp(y log|x|) with two-term sums, since y log|x| < 745 needs ten more bits than f64 has."""
    size = x.abs()
    m, e = split_positive(size)
    high, low = _log_in_two(m, float_of_small(e, F64))
    high = _at_ends(size, high)
    bounded = clamped(y, -(2.0**70), 2.0**70)
    product = bounded * high
    rest = product_error(bounded, high, product) + bounded * low
    outside = (product.abs() < 800.0).choose(rest, product.constant(0.0))
    result = exp_between(clamped(product, -800.0, 800.0), low=outside)
    return _signed(x, y, result)


def _log_in_two(m: Float, e: Float) -> tuple[Float, Float]:
    """Compute e ln(2) + log(m) as a two-term sum to 2^-64.

    With s = (m - 1) / (m + 1), the terms 2 s + 2/3 s^3 of the series are two-term sums themselves.
    """
    above, below = m - 1.0, m + 1.0
    lost = m - (below - 1.0)
    inverse = 1.0 / below
    s = above * inverse
    back = s * below
    s_low = (((above - back) - product_error(s, below, back)) - s * lost) * inverse
    z = s * s
    z_low = product_error(s, s, z) + 2.0 * s * s_low
    cube = s * z
    cube_low = product_error(s, z, cube) + (s * z_low + s_low * z)
    two_thirds = m.constant(constants.TWO_THIRDS[0])
    third = cube * two_thirds
    third_low = product_error(cube, two_thirds, third) + (
        cube * constants.TWO_THIRDS[1] + cube_low * two_thirds
    )
    tail = polynomial(constants.LOG_AFTER_CUBE_F64, z) * (z * z * s)
    ln2_high, ln2_low = constants.LN2_F64
    total, lost_1 = fast_two_sum(e * ln2_high, s + s)
    total, lost_2 = fast_two_sum(total, third)
    rest = e.times_plus(ln2_low, tail + third_low + (s_low + s_low)) + (lost_1 + lost_2)
    return fast_two_sum(total, rest)


def _at_ends(size: Float, log: Float) -> Float:
    log = size.equals(0.0).choose(size.constant(-math.inf), log)
    return (size < math.inf).choose(log, size)


def _signed(x: Float, y: Float, result: Float) -> Float:
    """Apply C's rules for negative bases, exponents 0 and the base 1 to ``result``, the power of |x|."""
    is_integer = y.truncated().equals(y)
    half = y * 0.5
    odd = is_integer & ~half.truncated().equals(half)
    negative = x.bits().compared("slt", 0)
    result = (odd & negative).choose(-result, result)
    no_number = (x < 0.0) & ~is_integer & (x > -math.inf)
    result = no_number.choose(x.constant(math.nan), result)
    return (y.equals(0.0) | x.equals(1.0)).choose(x.constant(1.0), result)
