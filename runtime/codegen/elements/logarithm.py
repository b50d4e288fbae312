"""Logarithm and log-plus-one: x = 2^e m with sqrt(1/2) <= m < sqrt(2), and log(x) = e ln(2) + log(m)."""

from __future__ import annotations

import math

from runtime.codegen.elements import constants
from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.common import (
    float_of_small,
    least,
    polynomial,
    power_of_two,
    split_normal,
    split_positive,
    two_sum,
)
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from spmd.hlo import Opcode

_LN2 = {F32: constants.LN2_F32, F64: constants.LN2_F64}


def log_sum(f: Float, e: Float) -> Float:
    """Compute e ln(2) + log(1 + f) for sqrt(1/2) <= 1 + f < sqrt(2), adding small terms first."""
    high, low = _LN2[f.format]
    half_square = f * f * 0.5
    if f.format is F32:
        rest = polynomial(constants.LOG_F32, f) * (f * f * f)
        return e.times_plus(high, f + (e.times_plus(low, rest) - half_square))
    # log(1 + f) = f - s (f - z P(z)) with s = f / (2 + f), and s f = f^2 / 2 - s f^2 / 2.
    s = f / (2.0 + f)
    z = s * s
    rest = (polynomial(constants.LOG_F64, z) * z + half_square) * s
    return e.times_plus(high, f - (half_square - e.times_plus(low, rest)))


def log_short(x: Float) -> Float:
    """Compute log(x) of a positive normal f64 to a relative error of 2^-35, which suffices for f32 results."""
    m, e = split_normal(x)
    f = m - 1.0
    return float_of_small(e, F64).times_plus(
        math.log(2), f * polynomial(constants.LOG_SHORT_F64, f)
    )


def _at_the_ends(x: Float, least: float, result: Float) -> Float:
    """Return ``result`` if least < x < inf, else the limit of the logarithm at that end, or nan below ``least``."""
    result = x.equals(math.inf).choose(x, result)
    outside = x.equals(least).choose(x.constant(-math.inf), x.constant(math.nan))
    return (x > least).choose(result, outside)


@FLOAT_FUNCTIONS.register((Opcode.LOG, F32), (Opcode.LOG, F64))
def log(x: Float) -> Float:
    m, e = split_positive(x)
    return _at_the_ends(x, 0.0, log_sum(m - 1.0, float_of_small(e, x.format)))


@FLOAT_FUNCTIONS.register((Opcode.LOG_PLUS_ONE, F32), (Opcode.LOG_PLUS_ONE, F64))
def log1p(x: Float) -> Float:
    """Compute log(u + d) for the rounded sum u = 1 + x and its rounding error d.

    With u = 2^e m the argument of ``log_sum`` is f = m - 1 + 2^-e d, or x itself if e is 0.
    """
    u, lost = two_sum(x.constant(1.0), x)
    m, e = split_normal(u)
    # Beyond 2^(mantissa + 2) the rounding error does not matter, and 2^-e may leave the normal
    # numbers.
    unscale = power_of_two(0 - least(e, x.format.mantissa + 2), x.format)
    f = lost.times_plus(unscale, m - 1.0)
    result = _at_the_ends(x, -1.0, log_sum(f, float_of_small(e, x.format)))
    return x.equals(0.0).choose(x, result)
