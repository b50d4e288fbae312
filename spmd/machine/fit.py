"""Fit of nonnegative coefficients of a sum of parts to measured seconds, by relative errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.literal import NDArray

#: Slope, relative to the largest at the start, below which the fit stops.
_TOLERANCE = 1e-12


def nonnegative_fit(
    parts: Sequence[Sequence[float]],
    seconds: Sequence[float],
    known: Sequence[float] | None = None,
) -> list[float]:
    """Return c >= 0 that minimizes the sum over i of ((known[i] + parts[i] . c) / seconds[i] - 1) ** 2; ``known`` None
    is 0.
    """
    matrix = np.array(parts, float) / np.array(seconds, float)[:, None]
    wanted = np.ones(len(matrix))
    if known is not None:
        wanted -= np.array(known, float) / np.array(seconds, float)
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    return [float(c) for c in _nonnegative_least_squares(matrix / scale, wanted) / scale]


def _nonnegative_least_squares(matrix: NDArray, wanted: NDArray) -> NDArray:
    """Solve the nonnegative least squares problem by C. L. Lawson and R. J. Hanson, Solving Least Squares Problems
    (1974), chapter 23: the set of nonzero coefficients grows by the one with the steepest slope, and loses those that
    would become negative.
    """
    found = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], bool)
    slope = matrix.T @ wanted
    least = _TOLERANCE * max(float(np.abs(slope).max(initial=0.0)), 1e-300)
    while not free.all() and slope[~free].max() > least:
        free[np.argmax(np.where(free, -np.inf, slope))] = True
        while True:
            solved = np.zeros_like(found)
            solved[free], *_ = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)
            negative = free & (solved <= 0)
            if not negative.any():
                break
            steps = found[negative] / (found[negative] - solved[negative])
            found += steps.min() * (solved - found)
            free &= found > least
            found[~free] = 0.0
        found = solved
        slope = matrix.T @ (wanted - matrix @ found)
    return found
