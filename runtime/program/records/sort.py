"""Record of sort and top-k kernels."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import ScalarProgram
from spmd.lazy_dataclass import dataclass

#: Largest number of dimensions besides the sorted one.
RANK = 4


@dataclass(frozen=True)
class SortKernel(Kernel):
    """Stable sort of the operands, in rows of ``size`` elements along ``axis``, by ``comparator``.

    All operands are sorted in the same order. The results hold the first ``count`` elements of each sorted row.
    with_indices: an additional s32 result holds the index in the row from which each element comes. scratch[0] is
    working memory of the CPU kernel.
    """

    comparator: ScalarProgram
    axis: int
    size: int
    count: int
    with_indices: bool
