"""Compiler of kernels to PTX for the GPU of a driver."""

from __future__ import annotations

from runtime.gpu.codegen.launch import KernelSource, PtxTarget
from runtime.gpu.codegen.ptx_module import ptx_for
from runtime.gpu.driver import GpuDriver
from runtime.gpu.planning import MakePtx, Views
from runtime.program.kernel import Kernel


def ptx_maker(driver: GpuDriver) -> MakePtx:
    """Return the compiler of kernels to PTX for the GPU of ``driver``."""
    target = PtxTarget(driver.arch, driver.multiprocessors)

    def make(
        kernel: Kernel, operands: Views, results: Views, scratch: Views
    ) -> tuple[KernelSource, ...] | None:
        return ptx_for(kernel, operands, results, scratch, target)

    return make
