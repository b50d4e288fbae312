"""Base class of the commands that run a kernel."""

from __future__ import annotations

from typing import ClassVar

from runtime.buffers.types import ArrayView
from runtime.gpu.command import Command, GpuProgram
from runtime.gpu.work import KernelArraysOnDevice
from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class KernelCommand(Command):
    """Call of ``kernel`` on slices of the program's allocations. ``implementation`` is its name in reports."""

    implementation: ClassVar[str]
    kernel: Kernel
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]
    scratch: tuple[ArrayView, ...] = ()

    def on_device(self, device: GpuProgram) -> KernelArraysOnDevice:
        """Return the command's arrays with their addresses on ``device``."""
        operands, results, scratch = (
            tuple(map(device.view, arrays))
            for arrays in (self.operands, self.results, self.scratch)
        )
        return KernelArraysOnDevice(operands, results, scratch)
