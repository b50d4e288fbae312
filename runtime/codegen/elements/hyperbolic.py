"""tanh, sinh, cosh, and their inverses, which f32 takes from f64."""

from __future__ import annotations

import math

from runtime.codegen.elements import constants
from runtime.codegen.elements.builder import F32, F64, Float
from runtime.codegen.elements.common import polynomial
from runtime.codegen.elements.exponential import exp_between, exp_halved
from runtime.codegen.elements.logarithm import log1p
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from spmd.hlo import Opcode

_TANH = {F32: constants.TANH_F32, F64: constants.TANH_F64}
#: From here on tanh rounds to 1.
_TANH_LAST = {F32: 10.0, F64: 20.0}


@FLOAT_FUNCTIONS.register((Opcode.TANH, F32), (Opcode.TANH, F64))
def tanh(x: Float) -> Float:
    """Odd polynomial up to 0.625, then 1 - 2 E / (1 + E) with E = exp(-2 |x|)."""
    u, t = x * x, x.abs()
    small = polynomial(_TANH[x.format], u).times_plus(u * x, x)
    last = _TANH_LAST[x.format]
    decay = exp_between((t > last).choose(t.constant(last), t) * -2.0)
    large = 1.0 - (decay + decay) / (1.0 + decay)
    return (t < 0.625).choose(small, large).with_sign_of(x)


@FLOAT_FUNCTIONS.register((Opcode.SINH, F64))
def sinh(x: Float) -> Float:
    """Odd polynomial up to 1, then (exp - 1 / exp) / 2."""
    u, t = x * x, x.abs()
    small = polynomial(constants.SINH_F64, u).times_plus(u * x, x)
    half = exp_halved(t)
    return (t < 1.0).choose(small, (half - 0.25 / half).with_sign_of(x))


@FLOAT_FUNCTIONS.register((Opcode.COSH, F64))
def cosh(x: Float) -> Float:
    half = exp_halved(x.abs())
    return half + 0.25 / half


@FLOAT_FUNCTIONS.register((Opcode.ASINH, F64))
def asinh(x: Float) -> Float:
    """log1p(t + t^2 / (1 + sqrt(t^2 + 1))); beyond 2^28, where t^2 + 1 is t^2, log(2 t)."""
    t = x.abs()
    u = t * t
    near = t + u / (1.0 + (u + 1.0).sqrt())
    return _log1p_or_doubled(t, near).with_sign_of(x)


@FLOAT_FUNCTIONS.register((Opcode.ACOSH, F64))
def acosh(x: Float) -> Float:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1; log(2 x) beyond 2^28."""
    t = x - 1.0
    result = _log1p_or_doubled(x, t + (t * (t + 2.0)).sqrt())
    return (x < 1.0).choose(x.constant(math.nan), result)


def _log1p_or_doubled(t: Float, near: Float) -> Float:
    """log1p(near), beyond 2^28 log(2 t)."""
    huge = t > 2.0**28
    return log1p(huge.choose(t - 1.0, near)) + huge.choose(t.constant(math.log(2)), 0.0)


@FLOAT_FUNCTIONS.register((Opcode.ATANH, F64))
def atanh(x: Float) -> Float:
    """log1p(2 t / (1 - t)) / 2"""
    t = x.abs()
    return (log1p((t + t) / (1.0 - t)) * 0.5).with_sign_of(x)
