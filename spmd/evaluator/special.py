"""Functions that NumPy lacks: erf.

erf follows W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), the form of
his CALERF: three intervals, each a ratio of polynomials, relative error below 1e-16 before rounding. f32 is evaluated
in f64, so it is correctly rounded but for rare ties.
"""

from __future__ import annotations

import numpy as np

from spmd.evaluator.value import NDArray

# |x| <= 0.46875: erf(x) = x P(x^2) / Q(x^2). Coefficients, highest power first.
_A = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_B = (
    1.0,
    2.36012909523441209e1,
    2.44024637934444173e2,
    1.28261652607737228e3,
    2.84423683343917062e3,
)
# 0.46875 < |x| <= 4: erfc(x) = exp(-x^2) P(x) / Q(x).
_C = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
    8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
_D = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
# |x| > 4: erfc(x) = exp(-x^2) / x (1/sqrt(pi) - P(1/x^2) / (x^2 Q(1/x^2))).
_P = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
_Q = (
    1.0, 2.56852019228982242e0, 1.87295284992346047e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
    2.33520497626869185e-3,
)  # fmt: skip
_ONE_OVER_SQRT_PI = 5.6418958354775628695e-1


def _horner(coefficients: tuple[float, ...], x: NDArray) -> NDArray:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total


def _erfc_scaled_exp(y: NDArray) -> NDArray:
    """Return exp(-y^2) with y^2 split so that its rounding does not reach the result (Cody)."""
    head = np.trunc(y * 16.0) / 16.0
    return np.exp(-head * head) * np.exp(-(y - head) * (y + head))


def _erf_f64(x: NDArray) -> NDArray:
    y = np.abs(x)
    result = np.ones_like(y)  # |x| >= 6: 1 - erfc(x) rounds to 1
    small = y <= 0.46875
    z = x[small] * x[small]
    result[small] = np.abs(x[small]) * _horner(_A, z) / _horner(_B, z)
    middle = ~small & (y <= 4.0)
    t = y[middle]
    result[middle] = 1.0 - _erfc_scaled_exp(t) * _horner(_C, t) / _horner(_D, t)
    large = (y > 4.0) & (y < 6.0)
    t = y[large]
    z = 1.0 / (t * t)
    tail = z * _horner(_P, z) / _horner(_Q, z)
    result[large] = 1.0 - _erfc_scaled_exp(t) * (_ONE_OVER_SQRT_PI - tail) / t
    result[np.isnan(y)] = np.nan
    return np.copysign(result, x)


def erf(x: NDArray) -> NDArray:
    """Return the error function of f32 or f64 elements."""
    return _erf_f64(np.atleast_1d(x.astype(np.float64))).reshape(x.shape).astype(x.dtype)
