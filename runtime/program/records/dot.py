"""Records of matrix products, of arrays and of slices that begin at computed places."""

from __future__ import annotations

from dataclasses import replace

from runtime.program.kernel import Kernel
from runtime.program.records.loop import StartsStage
from runtime.program.strides import Shift
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Elements of a converted block of the left operand, at most (if one row is not larger).
_BLOCK_ELEMENTS = 65536


@dataclass(frozen=True)
class DotKernel(Kernel):
    """Product results[0][b, m, n] = sum over k of operands[0][b, m, k] * operands[1][b, k, n]; b: several dimensions.

    Products are summed in ``compute``. Operands and results of other types are converted through scratch: left block,
    right matrix, result block, in this order, each only if it is needed. If integers are summed, or the tile unit does
    all (``on_tiles``), each element is converted when it is read.
    tf32: f32 operands may be rounded to TF32, which GPUs multiply about seven times as fast; processors never do.
    most_rows: the most rows that are converted at a time; None if the sizes alone decide. A part of a larger product
    converts as many rows as the product, so that it fits into the product's scratch, and BLAS rounds as it does there.
    """

    batch: tuple[int, ...]
    m: int
    k: int
    n: int
    lhs: PrimitiveType
    rhs: PrimitiveType
    result: PrimitiveType
    compute: PrimitiveType
    on_tiles: bool = False
    tf32: bool = False
    most_rows: int | None = None

    @property
    def is_direct(self) -> bool:
        """True if BLAS needs no conversion."""
        return self.lhs is self.rhs is self.result is self.compute

    @property
    def block_rows(self) -> int:
        """Return the number of rows of the left operand and of the result that are converted at a time."""
        fitting = max(1, _BLOCK_ELEMENTS // max(self.k, self.n, 1))
        return min(self.m, fitting if self.most_rows is None else self.most_rows)

    def part(self, *, m: int | None = None, n: int | None = None) -> DotKernel:
        """Return the product of ``m`` rows (or all) and ``n`` columns (or all) that converts as many rows at a time."""
        m, n = self.m if m is None else m, self.n if n is None else n
        return replace(self, m=m, n=n, most_rows=self.block_rows)

    def scratch_dims(self) -> list[tuple[int, int]]:
        """Return the sizes of the scratch arrays, all of the compute type."""
        if self.compute.is_integer or self.on_tiles:
            return []
        dims = []
        if self.lhs is not self.compute:
            dims.append((self.block_rows, self.k))
        if self.rhs is not self.compute:
            dims.append((self.k, self.n))
        if self.result is not self.compute:
            dims.append((self.block_rows, self.n))
        return dims


@dataclass(frozen=True, slots=True)
class FactorOperands:
    """Operands ``lhs`` and ``rhs`` of a kernel are a product's, as matrices.

    shifts: of each, the terms by which its first element moves with the values of the last stage of ``starts``.
    """

    lhs: int
    rhs: int
    shifts: tuple[tuple[Shift, ...], tuple[Shift, ...]] = ((), ())
    starts: tuple[StartsStage, ...] = ()


@dataclass(frozen=True)
class SlicedProductKernel(Kernel):
    """results[0] = ``product`` of the operands that ``factors`` names; scratch is the product's."""

    product: DotKernel
    factors: FactorOperands
