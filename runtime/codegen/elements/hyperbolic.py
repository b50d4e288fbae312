"""Hyperbolic functions and their inverses. The inverses of f32 numbers are computed in f64 by the plain formulas."""

from __future__ import annotations

import math

from runtime.codegen.elements import constants, intervals
from runtime.codegen.elements.approximations import approximate_exp2, approximate_reciprocal
from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.common import polynomial
from runtime.codegen.elements.exponential import exp_halved, exp_normal
from runtime.codegen.elements.formats import BF16, F32, F64
from runtime.codegen.elements.logarithm import log1p, log_short
from runtime.codegen.elements.piecewise import Piecewise, piecewise
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from spmd.hlo import Opcode

_TANH = {F32: constants.TANH_F32, F64: constants.TANH_F64}
_SINH = {F32: constants.SINH_F32, F64: constants.SINH_F64}
#: Argument from which on tanh rounds to 1, by format.
_TANH_LAST = {F32: 9.5, F64: 20.0}
_TANH_PIECES = Piecewise("tanh", _TANH_LAST[F32], intervals.TANH)
#: Intervals of tanh for bf16, beyond which the result rounds to 1.
_TANH_BF16_PIECES = Piecewise("tanh_bf16", 3.6, intervals.TANH_BF16)


@FLOAT_FUNCTIONS.register((Opcode.TANH, F32), (Opcode.TANH, F64))
def tanh(x: Float) -> Float:
    """Compute tanh by an odd polynomial up to 0.625 and beyond as 1 - 2 E / (1 + E) with E = exp(-2 |x|).

    f32 on processors with ``permutes`` uses a piecewise polynomial instead. On processors that ``approximate``, the
    quotient is 2 / (1 + exp(2 |x|)), as in CUDA's tanhf, for which NVIDIA states an error of at most two units in the
    last place.
    """
    if x.format is F32 and x.code.instructions.permutes:
        return _tanh_by_pieces(x, _TANH_PIECES)
    u, t = x * x, x.abs()
    small = polynomial(_TANH[x.format], u).times_plus(u * x, x)
    if x.format is F32 and x.code.instructions.approximates:
        growth = approximate_exp2(t * (2 / math.log(2)))
        large = approximate_reciprocal(growth + 1.0).times_plus(-2.0, 1.0)
    else:
        last = _TANH_LAST[x.format]
        decay = exp_normal((t > last).choose(t.constant(last), t) * -2.0)
        large = 1.0 - (decay + decay) / (1.0 + decay)
    return (t < 0.625).choose(small, large).with_sign_of(x)


@FLOAT_FUNCTIONS.register((Opcode.TANH, BF16))
def tanh_bf16(x: Float) -> Float:
    """Compute tanh to f32 so that its rounding to bf16 is correct for all bf16 arguments."""
    return _tanh_by_pieces(x, _TANH_BF16_PIECES) if x.code.instructions.permutes else tanh(x)


def _tanh_by_pieces(x: Float, pieces: Piecewise) -> Float:
    return piecewise(pieces, x.abs()).with_sign_of(x)


@FLOAT_FUNCTIONS.register((Opcode.SINH, F32), (Opcode.SINH, F64))
def sinh(x: Float) -> Float:
    """Compute sinh by an odd polynomial up to 1, and beyond as (exp(x) - 1 / exp(x)) / 2."""
    u, t = x * x, x.abs()
    small = polynomial(_SINH[x.format], u).times_plus(u * x, x)
    half = exp_halved(t)
    return (t < 1.0).choose(small, (half - 0.25 / half).with_sign_of(x))


@FLOAT_FUNCTIONS.register((Opcode.COSH, F32), (Opcode.COSH, F64))
def cosh(x: Float) -> Float:
    half = exp_halved(x.abs())
    return half + 0.25 / half


@FLOAT_FUNCTIONS.register((Opcode.ASINH, F64))
def asinh(x: Float) -> Float:
    """Compute log1p(t + t^2 / (1 + sqrt(t^2 + 1))) of t = |x|. Beyond 2^28, where t^2 + 1 is t^2, compute log(2 t)."""
    t = x.abs()
    u = t * t
    argument = t + u / (1.0 + (u + 1.0).sqrt())
    return _log1p_or_doubled(t, argument).with_sign_of(x)


@FLOAT_FUNCTIONS.register((Opcode.ACOSH, F64))
def acosh(x: Float) -> Float:
    """Compute log1p(t + sqrt(2 t + t^2)) with t = x - 1, or log(2 x) beyond 2^28."""
    t = x - 1.0
    result = _log1p_or_doubled(x, t + (t * (t + 2.0)).sqrt())
    return (x < 1.0).choose(x.constant(math.nan), result)


def _log1p_or_doubled(t: Float, argument: Float) -> Float:
    """Compute log1p(argument), or log(2 t) if t is beyond 2^28."""
    huge = t > 2.0**28
    return log1p(huge.choose(t - 1.0, argument)) + huge.choose(t.constant(math.log(2)), 0.0)


@FLOAT_FUNCTIONS.register((Opcode.ATANH, F64))
def atanh(x: Float) -> Float:
    """Compute log1p(2 t / (1 - t)) / 2 of t = |x|, with the sign of x."""
    t = x.abs()
    return (log1p((t + t) / (1.0 - t)) * 0.5).with_sign_of(x)


@FLOAT_FUNCTIONS.register((Opcode.ASINH, F32))
def asinh_f32(x: Float) -> Float:
    """Compute log(t + sqrt(t^2 + 1)) in f64. A small x is returned itself, since the formula would lose its digits."""
    t = x.to(F64).abs()
    return _odd(x, log_short(t + (t * t + 1.0).sqrt()))


@FLOAT_FUNCTIONS.register((Opcode.ACOSH, F32))
def acosh_f32(x: Float) -> Float:
    """Compute log(x + sqrt(x^2 - 1)) in f64."""
    t = x.to(F64)
    result = log_short(t + (t * t - 1.0).sqrt()).to(F32)
    result = (x < math.inf).choose(result, x)
    return (x < 1.0).choose(x.constant(math.nan), result)


@FLOAT_FUNCTIONS.register((Opcode.ATANH, F32))
def atanh_f32(x: Float) -> Float:
    """Compute log((1 + t) / (1 - t)) / 2 in f64."""
    t = x.to(F64).abs()
    result = _odd(x, log_short((1.0 + t) / (1.0 - t)) * 0.5)
    result = t.equals(1.0).choose(x.constant(math.inf).with_sign_of(x), result)
    return (t > 1.0).choose(x.constant(math.nan), result)


def _odd(x: Float, wide: Float) -> Float:
    """Return ``wide`` as an f32 with the sign of x, or x itself if it is small, infinite or nan."""
    t = x.abs()
    plain = (t < 2.0**-13) | ~(t < math.inf)
    return plain.choose(x, wide.to(F32).with_sign_of(x))
