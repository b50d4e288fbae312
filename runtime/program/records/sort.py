"""Record of sorts and top-k."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import ScalarProgram

#: Dimensions besides the sorted one at most.
RANK = 4


@dataclass(frozen=True)
class SortKernel(Kernel):
    """results = the operands' rows along ``axis`` in the comparator's order, equals as they stood: of each the first
    ``count`` of ``size`` elements. ``with_indices``: one more result has the places (s32) that they come from.

    scratch[0]: bytes that the back end asks for.
    """

    comparator: ScalarProgram
    axis: int
    size: int
    count: int
    with_indices: bool
