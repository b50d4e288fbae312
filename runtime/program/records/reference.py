"""Record of a kernel that the reference evaluator computes."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class ReferenceKernel(Kernel):
    """Call of the reference evaluator for ``instruction``.

    The instruction is a copy that belongs to no computation. All its operands are arrays.
    """

    instruction: HloInstruction
