"""Rare operations, which the reference evaluator computes before the result is copied to the result array.

The evaluator allocates its result and temporaries outside of the program's memory.
"""

from __future__ import annotations

import numpy as np

from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.attention import AttentionKernel
from runtime.program.records.ragged_dot import RaggedDotKernel
from runtime.program.records.reference import ReferenceKernel
from spmd.evaluator.evaluator import evaluate_instruction
from spmd.evaluator.value import Value, flatten


@CPU_KERNELS.binds(ReferenceKernel)
def bind_reference(kernel: ReferenceKernel, arrays: KernelArrays) -> Action:
    """Return an action that evaluates the instruction and copies the arrays of its value to the results."""
    operands: tuple[Value, ...] = arrays.operands

    def run() -> None:
        value = evaluate_instruction(kernel.instruction, operands)
        parts = [part for part in flatten(value) if isinstance(part, np.ndarray)]
        for target, part in zip(arrays.results, parts, strict=True):
            np.copyto(target, part)

    return run


for _kind in (AttentionKernel, RaggedDotKernel):
    CPU_KERNELS.binds(_kind)(bind_reference)
