"""The operations asin, acos and atan2."""

from __future__ import annotations

import math

from runtime.codegen.elements import constants
from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.common import polynomial, product_error, two_sum
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from spmd.hlo import Opcode

_ASIN = {F32: constants.ASIN_F32, F64: constants.ASIN_F64}
_ATAN = {F32: constants.ATAN_F32, F64: constants.ATAN_F64}
_HALF_PI, _HALF_PI_LOW = constants.HALF_PI


def _low_of(value: float, x: Float) -> float:
    """Return the rounding error of ``value``, a multiple of pi / 2, in the format of x."""
    rounded = x.format.rounded(value)
    return (value - rounded) + _HALF_PI_LOW * (value / _HALF_PI)


def _asin_folded(x: Float) -> tuple[Float, Float]:
    """Return a two-term sum (head, tail): asin(|x|) up to 1/2, and acos(|x|) / 2 beyond.

    The latter is computed as asin(sqrt((1 - |x|) / 2)).
    """
    t = x.abs()
    is_small = t <= 0.5
    u = is_small.choose(t * t, t.times_plus(-0.5, 0.5))
    head = is_small.choose(t, u.sqrt())
    return head, polynomial(_ASIN[x.format], u) * (u * head)


@FLOAT_FUNCTIONS.register((Opcode.ASIN, F32), (Opcode.ASIN, F64))
def asin(x: Float) -> Float:
    """Compute asin. If |x| > 1/2 it is pi / 2 - 2 asin(sqrt((1 - |x|) / 2)), with the sign of x."""
    head, tail = _asin_folded(x)
    low = _low_of(_HALF_PI, x)
    large = _HALF_PI - ((head + head) + (tail.times_plus(2.0, -low)))
    return (x.abs() <= 0.5).choose(head + tail, large).with_sign_of(x)


@FLOAT_FUNCTIONS.register((Opcode.ACOS, F32), (Opcode.ACOS, F64))
def acos(x: Float) -> Float:
    """Compute pi / 2 - asin(x) if |x| <= 1/2, and otherwise 2 asin(sqrt((1 - |x|) / 2)).

    If x < -1/2 the result is pi minus the latter.
    """
    head, tail = _asin_folded(x)
    low = _low_of(_HALF_PI, x)
    middle = _HALF_PI - ((head + tail).with_sign_of(x) - low)
    doubled = (head + tail) * 2.0
    left = 2 * _HALF_PI - (doubled - 2 * low)
    return (x.abs() <= 0.5).choose(middle, (x < 0.0).choose(left, doubled))


@FLOAT_FUNCTIONS.register((Opcode.ATAN2, F32), (Opcode.ATAN2, F64))
def atan2(y: Float, x: Float) -> Float:
    """Compute the angle of (x, y) from atan of the smaller over the larger size and the octant.

    The results for signed zeros and infinities agree with C in all 16 cases.
    """
    a, b = y.abs(), x.abs()
    steep = a > b
    small, large = steep.choose(b, a), steep.choose(a, b)
    angle = _atan_of_ratio(small, large)
    angle = (y.is_nan() | x.is_nan()).choose(x.constant(math.nan), angle)
    low = _low_of(_HALF_PI, x)
    angle = steep.choose(_HALF_PI - (angle - low), angle)
    left = x.bits().compared("slt", 0)
    angle = left.choose(2 * _HALF_PI - (angle - 2 * low), angle)
    return angle.with_sign_of(y)


def _atan_of_ratio(small: Float, large: Float) -> Float:
    """Compute atan(small / large) for 0 <= small <= large. It is 0 for 0 / 0 and pi / 4 for two infinities.

    From tan(pi / 8) on, f64 uses atan(s / l) = pi / 4 - atan((l - s) / (l + s)), whose quotient is corrected for the
    rounding errors of its operands.
    """
    both = small.equals(large)
    if small.format is F32:
        ratio = both.choose(small.constant(1.0), small / large)
        ratio = large.equals(0.0).choose(large, ratio)
        return _atan(ratio)
    huge = large > 2.0**900  # sums and splittings of such numbers may overflow
    small, large = huge.choose(small * 2.0**-64, small), huge.choose(large * 2.0**-64, large)
    is_reduced = small > large * (math.sqrt(2) - 1)
    difference, lost_above = two_sum(small, -large)
    total, lost_below = two_sum(small, large)
    quotient = difference / total
    product = quotient * total
    rest = (difference - product) - product_error(quotient, total, product)
    rest = rest + (lost_above - quotient * lost_below)
    ratio = is_reduced.choose(quotient + rest / total, small / large)
    ratio = (both | large.equals(0.0)).choose(small.constant(0.0), ratio)
    beyond = (is_reduced | both) & (large > 0.0)
    low = beyond.choose(small.constant(_HALF_PI_LOW / 2), 0.0)
    return beyond.choose(small.constant(_HALF_PI / 2), 0.0) + (_atan(ratio) + low)


def _atan(t: Float) -> Float:
    u = t * t
    return polynomial(_ATAN[t.format], u).times_plus(u * t, t)
