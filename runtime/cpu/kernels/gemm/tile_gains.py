"""Sizes from which a product of f32 matrices is faster on the tile unit than by BLAS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gains:
    """Sizes from which a product is faster on the tile unit than with one thread of BLAS."""

    lines: int
    depth: int
    products: int

    def at(self, m: int, n: int, k: int) -> bool:
        """Rows and columns of the result, and depth; and enough of all of them."""
        return min(m, n) >= self.lines and k >= self.depth and m * n * k >= self.products


#: Measured.
GAINS = Gains(lines=32, depth=16, products=1 << 20)
