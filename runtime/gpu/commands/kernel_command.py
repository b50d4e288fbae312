"""Base class of all kernel commands."""

from __future__ import annotations

from typing import ClassVar

from runtime.buffers.types import ArrayView
from runtime.gpu.command import Command, GpuProgram
from runtime.gpu.work import KernelArraysOnDevice
from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class KernelCommand(Command):
    """One call of a kernel. ``implementation``: its name in reports."""

    implementation: ClassVar[str]
    kernel: Kernel
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]
    scratch: tuple[ArrayView, ...] = ()

    def on_device(self, device: GpuProgram) -> KernelArraysOnDevice:
        operands, results, scratch = (
            tuple(map(device.view, arrays))
            for arrays in (self.operands, self.results, self.scratch)
        )
        return KernelArraysOnDevice(operands, results, scratch)
