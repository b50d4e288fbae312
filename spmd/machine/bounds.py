"""Bounds of the numbers in machine descriptions, which are untrusted."""

from __future__ import annotations

#: Slowdown of an array from outer levels, relative to that of a copy, beyond which a description is not plausible.
MOST_SLOWDOWN = 1e3

#: Smallest and largest plausible rate (per second), time (seconds), size (bytes) and count.
RATE = (1.0, 1e24)
SECONDS = (0.0, 10.0)
SIZE = (1, 1 << 60)
COUNT = (1, 1 << 24)
MULTIPLICATIONS = (1, 1 << 60)
FACTOR = (0.0, MOST_SLOWDOWN)
FRACTION = (1e-3, 1.0)
SHARE = (0.0, 1.0)
SPREAD = (0.0, 0.1)
