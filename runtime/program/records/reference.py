"""Record of an instruction that the reference evaluator computes."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class ReferenceKernel(Kernel):
    """``instruction`` is a copy that belongs to no computation; operands are all arrays."""

    instruction: HloInstruction
