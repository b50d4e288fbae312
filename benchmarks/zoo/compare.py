"""Compare outputs with JAX's: each within what rounding and JAX's own runs differ by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Units in the last place of an output's largest element that two correct programs may differ by, by bits of mantissa.
_ULPS_WIDE, _ULPS_NARROW = 64, 4
#: Factor on what JAX's own runs differ by.
_SPREAD = 8.0


@dataclass(frozen=True)
class LeafDifference:
    """Difference of one output.

    `of_tolerance` is the largest difference over the tolerance (<= 1 agrees); `looseness` the tolerance over the
    largest element, near 1 where the comparison means little.
    """

    path: str
    of_tolerance: float
    largest: float
    looseness: float

    @property
    def agrees(self) -> bool:
        return self.of_tolerance <= 1.0


def as_numbers(stored: Array, dtype: str) -> Array:
    """Stored values, or bits of types that NumPy lacks, as f64, c128 or s64 to compute with."""
    if (extension := _extension(dtype)) is not None:
        return stored.view(extension).astype(np.float32).astype(np.float64)
    if stored.dtype.kind == "c":
        return stored.astype(np.complex128)
    return stored.astype(np.float64 if stored.dtype.kind == "f" else np.int64)


def _epsilon(dtype: str) -> float:
    """Relative spacing of `dtype`; zero where values must be equal."""
    if (extension := _extension(dtype)) is not None:
        return float(ml_dtypes.finfo(extension).eps) if "float" in dtype else 0.0
    return float(np.finfo(dtype).eps) if np.dtype(dtype).kind in "fc" else 0.0


def _extension(dtype: str) -> type[Any] | None:
    """The type of that name if NumPy does not have it by itself."""
    return getattr(ml_dtypes, dtype, None)


def _distance(one: Array, other: Array) -> Array:
    """Absolute difference by element; zero between equal values and between NaNs, infinite where only one is finite."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0.0, np.abs(one - other))
    return np.where(np.isnan(apart), np.inf, apart)


def compare_leaf(path: str, dtype: str, got: Array, runs: Sequence[Array]) -> LeafDifference:
    """`runs`: JAX's outputs of the sharded and the unsharded run, and of others that show what rounding does."""
    mine, *jax_runs = (as_numbers(x, dtype) for x in (got, *runs))
    want = jax_runs[0]
    if mine.shape != want.shape:
        return LeafDifference(f"{path} has shape {mine.shape}, not {want.shape}", np.inf, np.inf, 0)
    if not want.size:
        return LeafDifference(path, 0.0, 0.0, 0.0)
    finite = np.abs(want)[np.isfinite(want)]
    scale = float(finite.max(initial=0.0))
    spread = max(
        float(_distance(one, other).max())
        for k, one in enumerate(jax_runs)
        for other in jax_runs[k + 1 :]
    )
    epsilon = _epsilon(dtype)
    ulps = _ULPS_WIDE if epsilon < 1e-6 else _ULPS_NARROW
    tolerance = ulps * epsilon * scale + _SPREAD * spread
    apart = min(float(_distance(mine, other).max()) for other in jax_runs[:2])
    of_tolerance = 0.0 if apart == 0 else apart / tolerance if tolerance else np.inf
    return LeafDifference(path, float(of_tolerance), apart, tolerance / scale if scale else 0.0)
