"""Arrays that begin as whatever lies in their memory."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.cpu.kernels.native_call import NOTHING
from runtime.program.kernel import CPU_KERNELS, Action, Kernel, KernelArrays


@dataclass(frozen=True)
class UnwrittenKernel(Kernel):
    """results[0] stays as it is."""


@CPU_KERNELS.binds(UnwrittenKernel)
def bind_unwritten(_: UnwrittenKernel, __: KernelArrays) -> Action:
    return NOTHING
