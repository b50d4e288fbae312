"""LLVM IR of rows of a product as sums of rows of the right matrix times elements of the left one, without packing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.values import Pointer
from runtime.cpu.kernels.gemm import tuning
from spmd.lazy_dataclass import dataclass

#: Address of a matrix, and its strides in bytes between rows and between columns.
Strided: TypeAlias = tuple[Pointer, IntLike, IntLike]


@dataclass(frozen=True, slots=True)
class RowSums:
    """Sums of ``rows`` rows of the result at a time.

    ``lhs``, ``rhs`` and ``total`` are LLVM types of elements and sums, and ``total_bytes`` the size of a sum.
    ``widen_a`` and ``widen_b`` convert elements of lhs and rhs to type ``total``; ``add`` returns a sum plus the
    product of two such values.
    """

    rows: int
    lhs: str
    rhs: str
    total: str
    total_bytes: int
    widen_a: Callable[[Any], Any]
    widen_b: Callable[[Any], Any]
    add: Callable[[Any, Any, Any], Any]


def write_row_sums(
    f: FunctionWriter, sums: RowSums, matrices: tuple[Strided, ...], depth: Int, count: Int
) -> None:
    """Write result[r, j] = sum of lhs[r, d] rhs[d, j] over d < depth, for r < sums.rows and j < count.

    ``matrices`` are lhs, rhs and result. Rows of rhs and result must be contiguous. ``count`` columns of all rows of
    the result should fit in cache.
    """
    result, result_row, _ = matrices[2]
    full = depth & -tuning.SUMMED_DEPTH
    for r in range(sums.rows):
        f.memset(result.at(r * result_row), count * sums.total_bytes)
    with f.loop(full, step=tuning.SUMMED_DEPTH, nonempty=False) as d:
        _add_rows(f, sums, matrices, [d + n for n in range(tuning.SUMMED_DEPTH)], count)
    with f.loop(depth, first=full, nonempty=False) as d:
        _add_rows(f, sums, matrices, [d], count)


def _add_rows(
    f: FunctionWriter, sums: RowSums, matrices: tuple[Strided, ...], depth: list[Int], count: Int
) -> None:
    """Write result[r, j] += sum of lhs[r, d] rhs[d, j] for d in ``depth``.

    The rows of the result overlap neither each other nor the operands, so that iterations are independent.
    """
    (lhs, lhs_row, lhs_step), (rhs, rhs_step, _), (result, result_row, _) = matrices
    rows = [rhs.at(d * rhs_step) for d in depth]
    targets = [result.at(r * result_row) for r in range(sums.rows)]
    left = [
        [sums.widen_a(lhs.at(r * lhs_row).at(d * lhs_step).load(sums.lhs)) for d in depth]
        for r in range(sums.rows)
    ]
    with f.vector_loop(count, by_llvm=True) as j:
        right = [sums.widen_b(row.element(sums.rhs, j).load(sums.rhs)) for row in rows]
        for target, numbers in zip(targets, left, strict=True):
            address = target.element(sums.total, j)
            total = address.load(sums.total)
            for a, b in zip(numbers, right, strict=True):
                total = sums.add(total, a, b)
            address.store(total)
