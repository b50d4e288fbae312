"""Dimensions of two shapes that hold the same elements, in row-major order."""

from __future__ import annotations

import math


def common_factors(
    before: tuple[int, ...], after: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """Return the shortest runs of dimensions of two shapes that have equally many elements, in order. Sizes of 1 are
    left out, and no size may be 0.

    [2,3,1,4] and [6,4]:  ([0, 1], [0]), ([3], [1])
    """
    left = [d for d, n in enumerate(before) if n != 1]
    right = [d for d, n in enumerate(after) if n != 1]
    runs: list[tuple[list[int], list[int]]] = []
    while left and right:
        run = [left.pop(0)], [right.pop(0)]
        while (m := math.prod(before[d] for d in run[0])) != (
            n := math.prod(after[d] for d in run[1])
        ):
            if m < n:
                run[0].append(left.pop(0))
            else:
                run[1].append(right.pop(0))
        runs.append(run)
    return runs
