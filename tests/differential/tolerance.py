"""The distance allowed between two evaluations of one program, derived from the same program in double precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = np.ndarray[Any, np.dtype[Any]]

#: Another order of summation may cost this many times what the order of the reference did.
ERROR_FACTOR = 16.0
#: Units in the last place granted on top: of the largest element, and of the largest value on the way in f32.
RESULT_ULPS = 4.0
PATH_ULPS = 16.0


def tolerance_of(want: Array, exact: Array | None, path: float) -> float:
    """0 for integers and pred; next to nothing for values that double precision reproduces bit for bit."""
    if want.dtype.kind in "biu" or want.size == 0:
        return 0.0
    wide = want.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
    finite = np.isfinite(wide)
    largest = float(np.abs(wide[finite]).max()) if finite.any() else 0.0
    unit = float(ml_dtypes.finfo(want.dtype).eps)
    if exact is None:
        return 64.0 * unit * largest
    both = finite & np.isfinite(exact)
    error = float(np.abs(wide[both] - exact[both]).max()) if both.any() else 0.0
    single = float(np.finfo(np.float32).eps) if want.dtype != np.float64 else unit
    granted = PATH_ULPS * single * path
    if error:
        granted += ERROR_FACTOR * error + RESULT_ULPS * unit * largest
    return granted


def worst_ratio(want: Array, got: Array, tolerance: float) -> float:
    """The largest error over ``tolerance``: 0 for equal values, inf where a value must be equal (or finite) and is not."""
    apart, error = _apart(want, got)
    if not apart.any():
        return 0.0
    largest = float(error[apart].max())
    return largest / tolerance if tolerance else float("inf")


def difference(want: Array, got: Array, tolerance: float) -> str:
    """A line that counts the elements further apart than ``tolerance`` and shows the first; "" where there is none."""
    apart, error = _apart(want, got)
    wrong = apart & ~(error <= tolerance)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {want.size} elements differ, first at {list(at)}: "
        f"expected {want[at]}, found {got[at]} (tolerance {tolerance:.3g})"
    )


def _apart(want: Array, got: Array) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which elements differ (nan equals nan), and by how much.

    The difference is inf where either is not finite, or both are integers. Each part of a complex number is compared
    for itself, since one may be infinite in both.
    """
    if want.dtype.kind in "biu":
        apart = want != got
        return apart, np.where(apart, np.inf, 0.0)
    if want.dtype.kind == "c":
        real, imaginary = _apart(want.real, got.real), _apart(want.imag, got.imag)
        return real[0] | imaginary[0], np.hypot(real[1], imaginary[1])
    w, g = want.astype(np.float64), got.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = ~((w == g) | (np.isnan(w) & np.isnan(g)))
        error = np.abs(w - g)
    return apart, np.where(apart, np.where(np.isnan(error), np.inf, error), 0.0)
