"""Elementwise functions of complex numbers that NumPy lacks, or computes imprecisely for huge or denormal parts.

If a quotient or a square could leave the range, powers of two are factored out first; that is exact.
"""

from __future__ import annotations

import numpy as np

from spmd.evaluator.value import NDArray


def make_complex(real: NDArray, imag: NDArray) -> NDArray:
    """Return real + i imag, keeping the parts' zeros, infinities and NaN."""
    out = np.empty(
        np.broadcast_shapes(real.shape, imag.shape), np.result_type(real.dtype, np.complex64)
    )
    out.real = real
    out.imag = imag
    return out


def _size(x: NDArray) -> NDArray:
    return np.asarray(np.maximum(np.abs(x.real), np.abs(x.imag)))


def _exponent(x: NDArray) -> NDArray:
    """Return e with the larger part of x in 2^(e - 1) .. 2^e; 0 for zero and for non-finite values."""
    return np.asarray(np.frexp(_size(x))[1])


def _scaled(x: NDArray, exponent: NDArray) -> NDArray:
    """Return x * 2^exponent."""
    return make_complex(np.ldexp(x.real, exponent), np.ldexp(x.imag, exponent))


def sign(x: NDArray) -> NDArray:
    """Return x / |x|; zero stays."""
    unit = _scaled(x, -_exponent(x))
    size = np.abs(unit)
    size = np.where(size == 0, size.dtype.type(1), size)
    return make_complex(unit.real / size, unit.imag / size)


def logistic(x: NDArray) -> NDArray:
    """Return 1 / (1 + exp(-x)), for negative real parts exp(x) / (1 + exp(x)): the exponential does not overflow."""
    one = x.dtype.type(1)
    left = x.real < 0
    small = np.exp(np.where(left, x, -x))
    result = np.where(left, small, one) / (one + small)
    return np.where(np.isneginf(x.real), np.exp(x), result)


def rsqrt(x: NDArray) -> NDArray:
    zero = make_complex(np.zeros_like(x.real), -np.copysign(x.real.dtype.type(0), x.imag))
    return np.where(np.isinf(x), zero, x.dtype.type(1) / np.sqrt(x))


def expm1(x: NDArray) -> NDArray:
    """Return exp(x) - 1: real if x is, and -1 at a real part of -inf, whatever the angle."""
    result = np.where(x.imag == 0, make_complex(np.expm1(x.real), x.imag), np.expm1(x))
    return np.where(np.isneginf(x.real), np.exp(x) - 1, result)


def log1p(x: NDArray) -> NDArray:
    """Return log(1 + x); near 0 from |1 + x|^2 = 1 + (re (2 + re) + im^2), which keeps the digits of a small x."""
    re, im = x.real, x.imag
    is_small = np.maximum(np.abs(re), np.abs(im)) < 0.25
    small = np.where(is_small, x, x.dtype.type(0))
    size = np.log1p(small.real * (2 + small.real) + small.imag * small.imag) / 2
    return np.where(
        is_small, make_complex(size, np.arctan2(im, 1 + re)), np.log(make_complex(1 + re, im))
    )


def divide(x: NDArray, y: NDArray) -> NDArray:
    above, below = _exponent(x), _exponent(y)
    return _scaled(np.asarray(_scaled(x, -above) / _scaled(y, -below)), above - below)


def power(x: NDArray, y: NDArray) -> NDArray:
    """Return exp(y log x); c64 computes in c128, where y log x stays finite."""
    return np.asarray(np.power(x.astype(np.complex128), y.astype(np.complex128)).astype(x.dtype))


def atan2(y: NDArray, x: NDArray) -> NDArray:
    """Return -i log((x + i y) / sqrt(x^2 + y^2)), which does not depend on a common factor."""
    common = -np.frexp(np.maximum(_size(x), _size(y)))[1]
    x, y = _scaled(x, common), _scaled(y, common)
    i = x.dtype.type(1j)
    return np.asarray(-i * np.log((x + i * y) / np.sqrt(x * x + y * y)))
