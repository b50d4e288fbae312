"""Record of a ragged product."""

from __future__ import annotations

from runtime.program.records.reference import ReferenceKernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class RaggedDotKernel(ReferenceKernel):
    """Product of matrices in groups, whose sizes are in an array: ``instruction`` is a ragged-dot.

    A CPU computes it by the reference evaluator.
    """
