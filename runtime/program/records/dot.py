"""Records of matrix products, of entire arrays and of dynamic slices."""

from __future__ import annotations

from dataclasses import replace

from runtime.program.kernel import Kernel
from runtime.program.records.loop import StartsStage
from runtime.program.strides import Shift
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Most elements of a converted block of lhs or of the result, unless one row has more.
_BLOCK_ELEMENTS = 65536


@dataclass(frozen=True)
class DotKernel(Kernel):
    """Product results[0][b.., m, n] = sum over k of operands[0][b.., m, k] * operands[1][b.., k, n].

    batch: sizes of the dimensions b. lhs, rhs, result: element types. compute: type of the accumulators. Arrays of
    other types are converted through scratch: a block of rows of lhs, a matrix rhs and a block of rows of the result,
    in this order, each only if it is needed. If ``compute`` is an integer type, or the tile unit computes the product
    (``on_tiles``), elements are converted when they are loaded, without scratch.
    tf32: f32 operands may be rounded to TF32, which GPUs multiply about seven times as fast; CPUs ignore it.
    most_rows: the most rows that are converted at a time; None if the sizes alone decide. A part of a larger product
    converts as many rows as that product, so that it fits into the product's scratch, and BLAS rounds in the same way.
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
        """True if all arrays have the type of the accumulators, so that BLAS needs no conversion."""
        return self.lhs is self.rhs is self.result is self.compute

    @property
    def block_rows(self) -> int:
        """Return the number of rows of lhs and of the result that are converted at a time."""
        fitting = max(1, _BLOCK_ELEMENTS // max(self.k, self.n, 1))
        return min(self.m, fitting if self.most_rows is None else self.most_rows)

    def part(self, *, m: int | None = None, n: int | None = None) -> DotKernel:
        """Return the product of ``m`` rows (or all) and ``n`` columns (or all) that converts as many rows at a time."""
        m, n = self.m if m is None else m, self.n if n is None else n
        return replace(self, m=m, n=n, most_rows=self.block_rows)

    def scratch_dims(self) -> list[tuple[int, int]]:
        """Return the sizes of the scratch arrays, whose type is ``compute``."""
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
    """Operands of a kernel that are the factors of a product, viewed as matrices.

    lhs, rhs: numbers of the operands. shifts: for lhs and for rhs, the run-time offsets of the first element.
    starts: computation of the run-time starts that the shifts name.
    """

    lhs: int
    rhs: int
    shifts: tuple[tuple[Shift, ...], tuple[Shift, ...]] = ((), ())
    starts: tuple[StartsStage, ...] = ()


@dataclass(frozen=True)
class SlicedProductKernel(Kernel):
    """Product of the operands that ``factors`` names, written to results[0]. The scratch is that of ``product``."""

    product: DotKernel
    factors: FactorOperands
