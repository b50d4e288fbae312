"""Attention fusions by Triton kernels, which keep no score matrix in memory."""

from __future__ import annotations

from runtime.gpu.libraries.call import LibraryCall
from runtime.gpu.libraries.sequence import SequenceBuilder, in_sequence
from runtime.gpu.triton.kernel import TritonKernel, triton_kernels
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, TritonWork, Work
from runtime.program.records.attention import AttentionKernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class TritonCall(LibraryCall):
    """Launch of the Triton kernel ``launch``, which computes results of ``kernel``, on all its operands and results."""

    kernel: AttentionKernel
    launch: TritonKernel
    can_be_captured = True

    def on(self, arrays: tuple[DeviceView, ...]) -> Work:
        count = self.kernel.instruction.num_operands
        return TritonWork(
            self.kernel, self.launch, KernelArraysOnDevice(arrays[:count], arrays[count:])
        )


@in_sequence(AttentionKernel)
def attention(kernel: AttentionKernel, builder: SequenceBuilder) -> bool:
    """Add the launches of the Triton kernels of ``kernel`` to ``builder``. Returns False if there are none."""
    arrays = (*builder.operands, *builder.results)
    try:
        launches = triton_kernels(
            kernel.instruction.to_apply,
            [array.view for array in builder.operands],
            [array.view for array in builder.results],
            tf32=builder.options.tf32,
        )
    except NoTritonKernelError:
        return False
    for launch in launches:
        builder.call(TritonCall(kernel, launch), *arrays)
    return True
