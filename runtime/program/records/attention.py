"""Record of a kernel of fused attention."""

from __future__ import annotations

from runtime.program.records.reference import ReferenceKernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class AttentionKernel(ReferenceKernel):
    """Sinks of score matrices: products and reductions that contract their rows or columns, and all that they need.

    ``instruction`` is a fusion that belongs to no computation. A CPU computes it by the reference evaluator.
    docs/internals/fusion.md describes its computation.
    """
