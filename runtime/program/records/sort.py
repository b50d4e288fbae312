"""Record of sorts and top-k."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import ScalarProgram
from spmd.lazy_dataclass import dataclass

#: Dimensions besides the sorted one at most.
RANK = 4


@dataclass(frozen=True)
class SortKernel(Kernel):
    """Stable sort of the operands' rows of ``size`` elements along ``axis``: results hold the first ``count`` of each.

    with_indices: one more result (s32) holds the index from which each element comes. scratch[0]: as many bytes as the
    back end needs.
    """

    comparator: ScalarProgram
    axis: int
    size: int
    count: int
    with_indices: bool
