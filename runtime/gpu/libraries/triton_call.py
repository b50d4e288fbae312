"""Launches of Triton kernels in sequences."""

from __future__ import annotations

from runtime.gpu.libraries.call import LibraryCall
from runtime.gpu.triton.kernel import TritonKernel
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, TritonWork, Work
from runtime.program.records.reference import ReferenceKernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class TritonCall(LibraryCall):
    """Launch of the Triton kernel ``launch``, which computes results of ``kernel``, on all its operands and results."""

    kernel: ReferenceKernel
    launch: TritonKernel
    can_be_captured = True

    def on(self, arrays: tuple[DeviceView, ...]) -> Work:
        count = self.kernel.instruction.num_operands
        return TritonWork(
            self.kernel, self.launch, KernelArraysOnDevice(arrays[:count], arrays[count:])
        )
