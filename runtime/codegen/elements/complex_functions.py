"""Exponential, logarithm, roots, powers, circular and hyperbolic functions of complex numbers.

All are computed in f64, in whose range the intermediate values of f32 functions are. f64 arguments near the limits of
the range are scaled. On the axes, and if a part is infinite or nan, the results are those of Annex G of the C standard.
"""

from __future__ import annotations

import math

from runtime.codegen.elements.builder import Bool, Float
from runtime.codegen.elements.common import product_error, two_sum
from runtime.codegen.elements.complex_arithmetic import (
    COMPLEX_FUNCTIONS,
    divide,
    exponent_of,
    times_power,
)
from runtime.codegen.elements.complex_numbers import Complex, chosen, infinite, not_finite
from runtime.codegen.elements.exponential import expm1 as real_expm1
from runtime.codegen.elements.exponential import exponential as real_exp
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.hyperbolic import cosh as real_cosh
from runtime.codegen.elements.hyperbolic import sinh as real_sinh
from runtime.codegen.elements.inverse_trigonometric import atan2 as real_atan2
from runtime.codegen.elements.logarithm import log as real_log
from runtime.codegen.elements.logarithm import log1p as real_log1p
from runtime.codegen.elements.trigonometric import sine_and_cosine
from spmd.hlo import Opcode

#: Argument beyond which exp approaches the limit of f64's range, and the amount by which it is then reduced.
_LARGE, _STEPS = 700.0, 64.0
#: Argument from which on tanh rounds to 1, by format. In f32 exp(-2 x) is not yet 0 there; in f64 the
#: difference to 1 vanishes by itself.
_FLAT_F32, _FLAT_F64 = 60.0, 350.0


def _reduced_argument(x: Float) -> tuple[Float, Float]:
    """Return (y, f) with exp(x) = exp(y) * f, so that a finite product with exp(x) does not overflow on the way."""
    is_large = x > _LARGE
    reduced = is_large.choose(x - _STEPS, x)
    return reduced, is_large.choose(x.constant(math.exp(_STEPS)), 1.0)


def _product(a: Float, b: Float) -> Float:
    """Compute a * b, which is 0 if one factor is 0, even if the other is infinite or nan."""
    none = a.equals(0.0) | b.equals(0.0)
    sign = a.constant(0.0).with_sign_of(a)
    flipped = (b.bits() ^ sign.bits()).as_float(F64)
    return none.choose(a.constant(0.0).with_sign_of(flipped), a * b)


def exponential(z: Complex) -> Complex:
    """Compute e^x (cos y + i sin y)."""
    x, y = z.re.to(F64), z.im.to(F64)
    sine, cosine = sine_and_cosine(z.im)
    reduced, factor = _reduced_argument(x)
    size = real_exp(reduced)
    re, im = (size * cosine) * factor, (size * sine) * factor
    no_angle = not_finite(y)
    left, right = x.equals(-math.inf) & no_angle, x.equals(math.inf) & no_angle
    re = right.choose(x, left.choose(x.constant(0.0), re))
    im = y.equals(0.0).choose(y, left.choose(x.constant(0.0), im))
    return Complex(re, im).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.EXPONENTIAL_MINUS_ONE)
def expm1(z: Complex) -> Complex:
    """Compute (e^x - 1) cos y - 2 sin(y / 2)^2 + i e^x sin y. The result is real if z is."""
    x, y = z.re.to(F64), z.im.to(F64)
    sine, cosine = sine_and_cosine(z.im)
    half, _ = sine_and_cosine(z.im * 0.5)
    reduced, factor = _reduced_argument(x)
    size = real_exp(reduced)
    re = real_expm1(x) * cosine - 2.0 * (half * half)
    re = (x > _LARGE).choose((size * cosine) * factor, re)
    im = (size * sine) * factor
    real = y.equals(0.0)
    left = x.equals(-math.inf)
    re = real.choose(real_expm1(x), left.choose(x.constant(-1.0), re))
    im = real.choose(y, left.choose(x.constant(0.0), im))
    return Complex(re, im).to(z.format)


def log(z: Complex) -> Complex:
    """Compute log |z| + i angle(z)."""
    return Complex(_log_length(z), real_atan2(z.im, z.re).to(F64)).to(z.format)


def _log_length(z: Complex) -> Float:
    """Compute log |z| as log(s) / 2 with s = x^2 + y^2. Near 1 the error of s - 1, divided by s, is added."""
    exact = z.to(F64)
    exponent = None
    if z.format is F64:
        exponent = exponent_of(exact)
        usual = (exponent + 200).compared("ult", 400)
        exponent = usual.select(exponent.constant(0), exponent)
        exact = times_power(exact, exponent.constant(0) - exponent)
    re, im = exact.re.abs(), exact.im.abs()
    larger = re > im
    a, b = larger.choose(re, im), larger.choose(im, re)
    p, q = a * a, b * b
    s = p + q
    total, lost = two_sum(p - 1.0, q)
    if z.format is F64:
        lost = lost + (product_error(a, a, p) + product_error(b, b, q))
    is_close_to_one = (s > 0.5) & (s < 2.0)
    correction = ((total - (s - 1.0)) + lost) / s
    result = (real_log(s) + is_close_to_one.choose(correction, 0.0)) * 0.5
    if exponent is not None:
        shifted_exponent = exponent + F64.bits_of(1.5 * 2.0**52)
        result = (shifted_exponent.as_float(F64) - 1.5 * 2.0**52).times_plus(math.log(2), result)
    is_infinite = infinite(re) | infinite(im)
    return is_infinite.choose(re.constant(math.inf), result)


@COMPLEX_FUNCTIONS.register(Opcode.LOG_PLUS_ONE)
def log1p(z: Complex) -> Complex:
    """Compute log(1 + z). Near 0 it uses |1 + z|^2 = 1 + (x (2 + x) + y^2), which keeps the digits of a small z."""
    x, y = z.re.to(F64), z.im.to(F64)
    is_small = (x.abs() < 0.25) & (y.abs() < 0.25)
    above = is_small.choose(x, 0.0) * (x + 2.0)
    small = real_log1p(is_small.choose(y * y + above, 0.0)) * 0.5
    one_more = x + 1.0
    general = _log_length(Complex(one_more, y))
    return Complex(is_small.choose(small, general), real_atan2(y, one_more)).to(z.format)


def sqrt(z: Complex) -> Complex:
    """Compute the square root (W. Kahan, 1987) from t = sqrt((|x| + |z|) / 2) and |y| / (2 t).

    The former is the size of the real part if x is positive, and of the imaginary part otherwise.
    """
    x, y = z.re.to(F64), z.im.to(F64)
    a, b = x.abs(), y.abs()
    factor = None
    if z.format is F64:
        size = (a > b).choose(a, b)
        large, small = size > 2.0**500, size < 2.0**-500
        factor = large.choose(x.constant(2.0**-600), small.choose(x.constant(2.0**600), 1.0))
        back = large.choose(x.constant(2.0**300), small.choose(x.constant(2.0**-300), 1.0))
        a, b = a * factor, b * factor
    t = ((a + (a * a + b * b).sqrt()) * 0.5).sqrt()
    t = infinite(x).choose(a, t)
    u = t.equals(0.0).choose(t, b / (t + t))
    if factor is not None:
        t, u = t * back, u * back
    right = (x.bits() >> 63).compared("eq", 0)
    tall = infinite(y)
    re = tall.choose(y.abs(), right.choose(t, u))
    im = tall.choose(y.abs(), right.choose(u, t))
    return Complex(re, im.with_sign_of(y)).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.RSQRT)
def rsqrt(z: Complex) -> Complex:
    """Compute 1 / sqrt(z), which is 0 if a part is infinite."""
    x, y = z.re.to(F64), z.im.to(F64)
    wide = Complex(x, y)
    root = sqrt(z).to(F64) if z.format is F64 else sqrt(wide)
    one = Complex(x.constant(1.0), x.constant(0.0))
    zero = Complex(x.constant(0.0), -(x.constant(0.0).with_sign_of(y)))
    return chosen(infinite(x) | infinite(y), zero, divide(one, root)).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.SIGN)
def sign(z: Complex) -> Complex:
    """Compute z / |z|. Zero is returned unchanged."""
    wide = z.to(F64)
    exponent = exponent_of(wide)
    unit = times_power(wide, exponent.constant(0) - exponent)
    size = (unit.re * unit.re + unit.im * unit.im).sqrt()
    size = (infinite(unit.re) | infinite(unit.im)).choose(size.constant(math.inf), size)
    size = size.equals(0.0).choose(size.constant(1.0), size)
    return Complex(unit.re / size, unit.im / size).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.LOGISTIC)
def logistic(z: Complex) -> Complex:
    """Compute 1 / (1 + exp(-z)), or exp(z) / (1 + exp(z)) if x is negative, so that the exponential is small."""
    wide = z.to(F64)
    left = wide.re < 0.0
    small = exponential(chosen(left, wide, -wide))
    one = Complex(wide.re.constant(1.0), wide.re.constant(0.0))
    result = divide(chosen(left, small, one), one + small)
    end = wide.re.equals(-math.inf)
    return chosen(end, small, result).to(z.format)


def _hyperbolic(x: Float) -> tuple[Float, Float, Float]:
    """Return (sinh x, cosh x, factor), where the first two must be multiplied by the factor and do not overflow."""
    is_large = x.abs() > _LARGE
    reduced = is_large.choose(x - x.constant(_STEPS).with_sign_of(x), x)
    return (
        real_sinh(reduced),
        real_cosh(reduced),
        is_large.choose(x.constant(math.exp(_STEPS)), 1.0),
    )


def _sinh(x: Float, sine: Float, cosine: Float) -> Complex:
    """Compute sinh x cos y + i cosh x sin y."""
    s, c, factor = _hyperbolic(x)
    re = (infinite(x) & cosine.is_nan()).choose(x, _product(s, cosine) * factor)
    return Complex(re, _product(c, sine) * factor)


def _cosh(x: Float, sine: Float, cosine: Float) -> Complex:
    """Compute cosh x cos y + i sinh x sin y."""
    s, c, factor = _hyperbolic(x)
    re = (infinite(x) & cosine.is_nan()).choose(x.abs(), _product(c, cosine) * factor)
    return Complex(re, _product(s, sine) * factor)


@COMPLEX_FUNCTIONS.register(Opcode.SINH)
def sinh(z: Complex) -> Complex:
    return _sinh(z.re.to(F64), *sine_and_cosine(z.im)).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.COSH)
def cosh(z: Complex) -> Complex:
    return _cosh(z.re.to(F64), *sine_and_cosine(z.im)).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.SINE)
def sine(z: Complex) -> Complex:
    """Compute -i sinh(i z)."""
    rotated = _sinh(-(z.im.to(F64)), *sine_and_cosine(z.re))
    return Complex(rotated.im, -rotated.re).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.COSINE)
def cosine(z: Complex) -> Complex:
    """Compute cosh(i z)."""
    return _cosh(-(z.im.to(F64)), *sine_and_cosine(z.re)).to(z.format)


def _tanh(x: Float, y: Float, sine: Float, cosine: Float, flat: float) -> Complex:
    """Compute (sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y), whose denominator has no cancellation."""
    is_flat = x.abs() > flat
    inside = is_flat.choose(x.constant(flat).with_sign_of(x), x)
    s, c = real_sinh(inside), real_cosh(inside)
    below = s * s + cosine * cosine
    re, im = s * c / below, sine * cosine / below
    rest = real_exp(is_flat.choose(-2.0 * (x.abs() - flat), 0.0))
    im = im * rest
    end = infinite(x)
    re = end.choose(x.constant(1.0).with_sign_of(x), x.equals(0.0).choose(x, re))
    im = (end & im.is_nan()).choose(x.constant(0.0), im)
    return Complex(re, y.equals(0.0).choose(y, im))


def _flat(z: Complex) -> float:
    return _FLAT_F32 if z.format is F32 else _FLAT_F64


@COMPLEX_FUNCTIONS.register(Opcode.TANH)
def tanh(z: Complex) -> Complex:
    x, y = z.re.to(F64), z.im.to(F64)
    return _tanh(x, y, *sine_and_cosine(z.im), _flat(z)).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.TAN)
def tan(z: Complex) -> Complex:
    """Compute -i tanh(i z)."""
    x, y = z.re.to(F64), z.im.to(F64)
    rotated = _tanh(-y, x, *sine_and_cosine(z.re), _flat(z))
    return Complex(rotated.im, -rotated.re).to(z.format)


@COMPLEX_FUNCTIONS.register(Opcode.POWER)
def power(z: Complex, exponent: Complex) -> Complex:
    """Compute exp(w log z) for the exponent w.

    The result is 1 for w = 0 and z for w = 1. For z = 0 it is 0 if w is positive, and otherwise nan.
    """
    x, w = z.to(F64), exponent.to(F64)
    logarithm = log(z if z.format is F64 else x)
    result = exponential(w * logarithm)
    real: Bool = w.im.equals(0.0)
    is_zero = x.re.equals(0.0) & x.im.equals(0.0)
    none = x.re.constant(0.0)
    at_zero = (real & (w.re > 0.0)).choose(none, x.re.constant(math.nan))
    result = chosen(is_zero, Complex(at_zero, at_zero), result)
    result = chosen(real & w.re.equals(1.0), x, result)
    one = Complex(x.re.constant(1.0), none)
    return chosen(real & w.re.equals(0.0), one, result).to(z.format)


COMPLEX_FUNCTIONS.add(Opcode.EXPONENTIAL, exponential)
COMPLEX_FUNCTIONS.add(Opcode.LOG, log)
COMPLEX_FUNCTIONS.add(Opcode.SQRT, sqrt)
