"""Coefficients of a sum of parts that come nearest to measured seconds: none negative, all errors relative."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def nonnegative_fit(
    parts: Sequence[Sequence[float]],
    seconds: Sequence[float],
    known: Sequence[float] | None = None,
) -> list[float]:
    """c >= 0 that minimizes the sum over i of ((known[i] + parts[i] . c) / seconds[i] - 1) ** 2; nothing known is 0.

    Of few parts, so that every choice of those that count is tried: the best without negative coefficients is the
    solution, since it satisfies what is known of it (Lawson and Hanson, Solving Least Squares Problems, 1974).
    """
    matrix = np.array(parts, float) / np.array(seconds, float)[:, None]
    wanted = np.ones(len(matrix))
    if known is not None:
        wanted -= np.array(known, float) / np.array(seconds, float)
    width = matrix.shape[1]
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    matrix = matrix / scale
    best, least = np.zeros(width), float(np.square(wanted).sum())
    for count in range(1, width + 1):
        for chosen in itertools.combinations(range(width), count):
            columns = list(chosen)
            found, *_ = np.linalg.lstsq(matrix[:, columns], wanted, rcond=None)
            if found.min() < 0:
                continue
            error = float(np.square(matrix[:, columns] @ found - wanted).sum())
            if error < least:
                least, best = error, np.zeros(width)
                best[columns] = found
    return [float(c) for c in best / scale]
