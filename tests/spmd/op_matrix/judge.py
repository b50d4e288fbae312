"""Compare what the evaluator gave with a definition: exactly, or within units in the last place of the element type."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np
from mpmath import mp, mpc, mpf

from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, FloatFormat, Real, to_fraction

#: A complex value below this is zero but for the stand-ins for zero parts.
_NOTHING = mpf(2) ** -1150


def close(kind: str, got: float, want: Real, ulps: float) -> bool:
    """``got``, an element of the floating type, is ``want`` within ``ulps``; 0 means correctly rounded, zero's sign too."""
    form = FLOATS[kind]
    rounded = form.round(want)
    if same(got, rounded):
        return True
    if special(want) or not ulps:
        return False
    exact = to_fraction(want)
    if not math.isfinite(got):
        return abs(exact) >= form.largest - to_fraction(ulps) * form.ulp(form.largest)
    if abs(exact) > form.largest + to_fraction(ulps) * form.ulp(form.largest):
        return False
    return abs(to_fraction(got) - exact) <= to_fraction(ulps) * form.ulp(exact)


def special(x: Real) -> bool:
    return isinstance(x, float) and (not math.isfinite(x) or x == 0)


def same(a: float, b: float) -> bool:
    """Equal with the sign of zero, NaN equal to NaN."""
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def has_nan(form: FloatFormat) -> bool:
    return form.flavour != "finite"


def complex_close(
    kind: str, got: complex, want: mpc | complex, ulps: float, at_least: float = 0.0
) -> bool:
    """Return whether ``got`` is within ``ulps`` of the larger part, or of ``at_least``.

    The larger part is the measure, since cancellation may spoil the smaller one.
    """
    form = FLOATS[COMPLEX[kind]]
    if isinstance(want, complex):
        if cmath.isnan(want):
            return cmath.isnan(got) or cmath.isinf(got)
        return all(
            same_but_zero_sign(g, form.round(w))
            for g, w in ((got.real, want.real), (got.imag, want.imag))
        )
    with mp.workprec(200):
        size = max(abs(want.real), abs(want.imag))
        size = max(size, mpf(at_least))
        if size < _NOTHING:
            return got == 0
        unit = form.ulp(size)
        over = to_fraction(size) - form.largest
        if not (math.isfinite(got.real) and math.isfinite(got.imag)):
            return over >= -to_fraction(ulps) * unit
        if over > to_fraction(ulps) * unit:
            return False
        return all(
            abs(to_fraction(g) - to_fraction(w)) <= to_fraction(ulps) * unit
            for g, w in ((got.real, want.real), (got.imag, want.imag))
        )


def same_but_zero_sign(a: float, b: float) -> bool:
    return (a != a and b != b) or a == b or abs(a - b) <= 4e-6 * abs(b)


def scalars(x: np.ndarray[Any, Any]) -> list[Any]:
    """Elements as Python scalars; every floating type is a part of float."""
    flat = x.reshape(-1)
    if flat.dtype.kind in "bc":
        return list(flat.tolist())
    if "int" in flat.dtype.name:
        return [int(v) for v in flat]
    return [float(v) for v in flat]
