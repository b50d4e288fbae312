"""Slowdown of accesses by their strides, relative to contiguous ones."""

from __future__ import annotations

#: Cost factors of reading one element per cache line, and blocks that are transposed in registers. Both are estimates
#: with which decisions were checked. A core of an EPYC (Zen 5) takes more for f32: 6 to 14 for every other element, 17
#: to 57 for one per line (x + x^T takes 1.8 to 3.4 times as long as x + y).
STRIDED, TRANSPOSED = 4.0, 1.5


def stride_slowdown(stride: int, item: int) -> float:
    """Return the slowdown of elements of ``item`` bytes that are ``stride`` bytes apart; 0 repeats one element."""
    return min(STRIDED, abs(stride) / item) if stride else 1.0
