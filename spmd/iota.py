"""Recognition of lists of device ids that are a transposed count from zero."""

from __future__ import annotations

import math
from collections.abc import Sequence


def recognise_iota(ids: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (reshape_dims, transpose_perm) whose ids are ``ids``, or None, in time linear in the list's length.

    The list is read as nested runs of constant stride, minor first; the strides are those of the digits.
    """
    n = len(ids)
    if n == 0 or ids[0] != 0:
        return None
    if n == 1:
        return (1,), (0,)
    runs: list[tuple[int, int]] = []  # (stride, size), minor first
    block = 1
    while block < n:
        step = ids[block] - ids[0]
        size = 1
        while (size + 1) * block <= n and ids[size * block] - ids[(size - 1) * block] == step:
            size += 1
        if step <= 0 or n % (block * size):
            return None
        runs.append((step, size))
        block *= size
    expected = [0]
    for step, size in runs:
        expected = [start + k * step for k in range(size) for start in expected]
    if expected != list(ids):
        return None
    major_first = sorted(runs, key=lambda run: -run[0])
    strides = strides_of(tuple(size for _, size in major_first))
    if any(stride != run[0] for stride, run in zip(strides, major_first, strict=True)):
        return None
    return tuple(size for _, size in major_first), tuple(
        major_first.index(run) for run in reversed(runs)
    )


def strides_of(sizes: tuple[int, ...]) -> list[int]:
    return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
