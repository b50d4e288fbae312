"""Kernel of results that stay uninitialized."""

from __future__ import annotations

from runtime.cpu.kernels.native_call import NOTHING
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.copy import UninitializedKernel


@CPU_KERNELS.binds(UninitializedKernel)
def bind_uninitialized(_: UninitializedKernel, __: KernelArrays) -> Action:
    """Return an action that does nothing."""
    return NOTHING
