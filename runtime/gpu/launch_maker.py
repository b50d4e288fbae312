"""Compiler of kernels to PTX for the GPU of a driver."""

from __future__ import annotations

from runtime.gpu.codegen.launch import GpuTarget, KernelSource
from runtime.gpu.codegen.ptx_module import launches_for
from runtime.gpu.driver import GpuDriver
from runtime.gpu.planning import MakeLaunches, Views
from runtime.program.kernel import Kernel


def launch_maker(driver: GpuDriver) -> MakeLaunches:
    """Return the compiler of kernels to PTX for the GPU of ``driver``."""
    target = GpuTarget(driver.arch, driver.multiprocessors)

    def make(
        kernel: Kernel, operands: Views, results: Views, scratch: Views
    ) -> tuple[KernelSource, ...] | None:
        return launches_for(kernel, operands, results, scratch, target)

    return make
