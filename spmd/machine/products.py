"""ProductClass: seconds of matrix products of one range of types and sizes.

A product of [m, k] and [k, n] matrices multiplies m k n times, packs its operands into the layout that the machine
multiplies, and writes a result. Sizes count as multiples of the machine's blocks in the multiplication: a tile unit
pads smaller ones. As much of one operand stays packed as a cache holds. The other one is packed again for each block of
lines of the first (rows of lhs, columns of rhs), and results of a further block of the depth are added to the stored
ones. If both have one type, the operand order with less packing is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

Transposed: TypeAlias = tuple[bool, bool]
"""For lhs and for rhs: True if the columns, and not the rows, are contiguous."""


@dataclass(frozen=True, slots=True)
class ProductClass:
    """Cost class of products of ``lhs`` and ``rhs`` operands with ``result`` elements. It covers products with at least
    ``lines`` rows and columns, ``depth`` and ``multiplications``. Seconds are for data in the nearest level.

    line_block, depth_block: sizes are rounded up to multiples of these in the multiplication.
    columns: columns of rhs, or rows of lhs, that stay packed at the largest depth, ``deep``; more of them at a smaller
      depth.
    call_seconds: of one product, whatever its size.
    multiply_seconds: of one multiplication.
    lhs_seconds, rhs_seconds: of one packed element.
    result_seconds: of one written element.
    added_seconds: of one element to which the next block of the depth is added.
    lhs_transposed_seconds, rhs_transposed_seconds: additional seconds of one packed element of a transposed operand.
    lhs_uncached, rhs_uncached, result_uncached: slowdown of operands and results from outer levels, relative to that of
      a copy.
    lhs_transposed_uncached, rhs_transposed_uncached: addition to it for a transposed operand.
    """

    lhs: PrimitiveType
    rhs: PrimitiveType
    result: PrimitiveType
    lines: int
    depth: int
    multiplications: int
    line_block: int
    depth_block: int
    columns: int
    deep: int
    call_seconds: float = 0.0
    multiply_seconds: float = 0.0
    lhs_seconds: float = 0.0
    rhs_seconds: float = 0.0
    result_seconds: float = 0.0
    added_seconds: float = 0.0
    lhs_transposed_seconds: float = 0.0
    rhs_transposed_seconds: float = 0.0
    lhs_uncached: float = 1.0
    rhs_uncached: float = 1.0
    result_uncached: float = 1.0
    lhs_transposed_uncached: float = 0.0
    rhs_transposed_uncached: float = 0.0

    @property
    def types(self) -> tuple[PrimitiveType, PrimitiveType, PrimitiveType]:
        return self.lhs, self.rhs, self.result

    def holds(self, m: int, k: int, n: int) -> bool:
        return min(m, n) >= self.lines and k >= self.depth and m * k * n >= self.multiplications

    def parts(
        self, m: int, k: int, n: int, transposed: Transposed = (False, False)
    ) -> tuple[float, ...]:
        """Return the count of each of ``coefficients`` in a product."""
        rows, columns = _up(m, self.line_block), _up(n, self.line_block)
        multiplied = float(rows * columns) * _up(k, self.depth_block)
        lhs_packings, rhs_packings, blocks = self.passes(m, k, n, transposed)
        lhs, rhs = float(m) * k * lhs_packings, float(k) * n * rhs_packings
        return (
            *(1.0, multiplied, lhs, rhs, float(m) * n, float(m) * n * (blocks - 1)),
            *(lhs * transposed[0], rhs * transposed[1]),
        )

    @property
    def coefficients(self) -> tuple[float, ...]:
        return (
            self.call_seconds,
            self.multiply_seconds,
            self.lhs_seconds,
            self.rhs_seconds,
            self.result_seconds,
            self.added_seconds,
            self.lhs_transposed_seconds,
            self.rhs_transposed_seconds,
        )

    def passes(
        self, m: int, k: int, n: int, transposed: Transposed = (False, False)
    ) -> tuple[int, int, int]:
        """Return how often lhs and rhs are packed, and how often elements of the result are written: once per block of
        the depth. A transposed line costs as much to pack as two."""
        blocks = -(-k // self.deep)
        depth = max(_up(-(-k // max(blocks, 1)), self.depth_block), 1)
        lines = max(self.columns * self.deep // depth, 1)
        row_blocks, column_blocks = -(-m // lines), -(-n // lines)
        lhs, rhs = m * (1 + transposed[0]), n * (1 + transposed[1])
        if self.lhs is self.rhs and lhs + rhs * row_blocks < rhs + lhs * column_blocks:
            return 1, row_blocks, blocks
        return column_blocks, 1, blocks

    def with_uncached(
        self,
        lhs: float = 1.0,
        rhs: float = 1.0,
        result: float = 1.0,
        lhs_transposed: float = 0.0,
        rhs_transposed: float = 0.0,
    ) -> ProductClass:
        """Return the same class with these factors."""
        return replace(
            self,
            lhs_uncached=lhs,
            rhs_uncached=rhs,
            result_uncached=result,
            lhs_transposed_uncached=lhs_transposed,
            rhs_transposed_uncached=rhs_transposed,
        )

    def uncached_slowdowns(self, transposed: Transposed) -> tuple[float, float, float]:
        """Return the factors of far reads for lhs, rhs and the result."""
        lhs = self.lhs_uncached + transposed[0] * self.lhs_transposed_uncached
        rhs = self.rhs_uncached + transposed[1] * self.rhs_transposed_uncached
        return lhs, rhs, self.result_uncached

    def seconds(self, m: int, k: int, n: int, transposed: Transposed = (False, False)) -> float:
        """Return the seconds of one product whose operands and result are in the nearest level."""
        parts = self.parts(m, k, n, transposed)
        return sum(c * part for c, part in zip(self.coefficients, parts, strict=True))


def class_for(
    classes: Sequence[ProductClass],
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType],
    sizes: tuple[int, int, int],
) -> ProductClass | None:
    """Return the first class that covers products of sizes m, k and n; None if none does."""
    return next((one for one in classes if one.types == types and one.holds(*sizes)), None)


def _up(size: int, block: int) -> int:
    return -(-size // block) * block
