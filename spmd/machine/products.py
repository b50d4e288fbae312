"""ProductClass: what products of matrices take, of the types and sizes that one way of making them is for.

A product of [m, k] and [k, n] matrices multiplies m k n times, and has operands to bring into the form that the machine
multiplies (packing) and a result to write. Sizes count as multiples of the machine's blocks where it multiplies: a tile
unit fills up what is smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class ProductClass:
    """Of operands of ``lhs`` and ``rhs`` into ``result``: ``lines`` rows and columns at least, ``depth`` and
    ``multiplications`` at least.

    line_block, depth_block: sizes count as multiples of these where they are multiplied. columns, deep: lhs is gone
    over again for every so many columns, the result for every so much of the depth.

    call_seconds: of one product, whatever its size; multiply_seconds, of one multiplication; lhs_seconds, rhs_seconds,
    result_seconds, of an element: all of them where everything is near. far: how many times as long as in a copy it
    takes operands and results to come from farther away.
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
    call_seconds: float
    multiply_seconds: float
    lhs_seconds: float
    rhs_seconds: float
    result_seconds: float
    far: float = 1.0

    @property
    def types(self) -> tuple[PrimitiveType, PrimitiveType, PrimitiveType]:
        return self.lhs, self.rhs, self.result

    def holds(self, m: int, k: int, n: int) -> bool:
        return min(m, n) >= self.lines and k >= self.depth and m * k * n >= self.multiplications

    def parts(self, m: int, k: int, n: int) -> tuple[float, ...]:
        """How often each of ``coefficients`` counts."""
        rows, columns = _up(m, self.line_block), _up(n, self.line_block)
        multiplied = float(rows * columns) * _up(k, self.depth_block)
        return (1.0, multiplied, float(m) * k, float(k) * n, float(m) * n)

    @property
    def coefficients(self) -> tuple[float, ...]:
        return (
            self.call_seconds,
            self.multiply_seconds,
            self.lhs_seconds,
            self.rhs_seconds,
            self.result_seconds,
        )

    def passes(self, k: int, n: int) -> tuple[int, int, int]:
        """How often lhs and rhs are read, and the result is read or written."""
        return -(-n // self.columns), 1, 2 * -(-k // self.deep) - 1

    def seconds(self, m: int, k: int, n: int) -> float:
        """Of one product whose operands and result are as near as they can be."""
        parts = self.parts(m, k, n)
        return sum(c * part for c, part in zip(self.coefficients, parts, strict=True))


def class_for(
    classes: Sequence[ProductClass],
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType],
    sizes: tuple[int, int, int],
) -> ProductClass | None:
    """The first that holds for products of sizes m, k and n; None where none does."""
    return next((one for one in classes if one.types == types and one.holds(*sizes)), None)


def _up(size: int, block: int) -> int:
    return -(-size // block) * block
