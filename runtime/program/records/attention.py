"""Record of an attention fusion, in which no score matrix is in memory."""

from __future__ import annotations

from runtime.program.records.reference import ReferenceKernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class AttentionKernel(ReferenceKernel):
    """Call of the attention fusion ``instruction``: scores, their softmax or its gradient, and products with them."""
