"""Passes of a transform: their radices, digit reversal, and twiddle factors."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from runtime.cpu.kernels.fft.fft_ir import RADICES
from spmd.literal import NDArray

#: Pi in NumPy's longdouble, which has 80 bits on some machines.
PI = np.longdouble(math.pi) + np.longdouble(1.2246467991473532e-16)


@cache
def radices_of(points: int) -> tuple[int, ...] | None:
    """Return the radices in the order of the passes, or None if ``points`` has prime factors larger than 5."""
    if points == 1:
        return ()
    eights, rest = 0, points
    while rest % 8 == 0:
        eights, rest = eights + 1, rest // 8
    # Two passes of radix 4 take less than one of 8 and one of 2.
    if rest % 2 == 0 and rest % 4 and eights:
        eights, rest = eights - 1, rest * 8
    found = [8] * eights
    for radix in RADICES[1:]:
        while rest % radix == 0:
            found.append(radix)
            rest //= radix
    return tuple(found) if rest == 1 else None


@cache
def digit_reversal(points: int) -> NDArray:
    """Return the position of each of ``points`` elements before the first pass: its index with reversed digits."""
    radices = radices_of(points)
    assert radices is not None, "it was asked for before"
    positions = np.zeros(points, np.int64)
    numbers, left = np.arange(points), points
    for radix in reversed(radices):
        left //= radix
        positions += (numbers % radix) * left
        numbers = numbers // radix
    return positions


def roots_of_unity(numbers: NDArray, points: int, part: np.dtype[np.generic]) -> NDArray:
    """Return exp(-2 pi i numbers / points) as an array [.., 2] of type ``part``.

    The values are accurate to about half a unit in the last place: angles are reduced to the first octant, where they
    lose no digits.
    """
    eighth = numbers % points * 8
    octant, rest = eighth // points, eighth % points
    rest = np.where(octant % 2 == 1, points - rest, rest)
    angle = rest * (PI / 4 / points)
    cos, sin = np.cos(angle), np.sin(angle)
    swapped = np.isin(octant, (1, 2, 5, 6))
    x, y = np.where(swapped, sin, cos), np.where(swapped, cos, sin)
    x = np.where(np.isin(octant, (2, 3, 4, 5)), -x, x)
    y = np.where(octant >= 4, -y, y)
    return np.stack([x, -y], axis=-1).astype(part)


@cache
def twiddles_of(points: int, radix: int, part: str) -> NDArray:
    """Return the factors [k, q - 1, 2] of the pass of ``radix`` that makes transforms of ``points`` points.

    ``part`` is the name of the type of a part, as NumPy spells it.
    """
    numbers = np.outer(np.arange(points // radix), np.arange(1, radix))
    return np.ascontiguousarray(roots_of_unity(numbers, points, np.dtype(part)))
