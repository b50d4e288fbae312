"""Loading and launching of Triton kernels by CUDA's driver interface."""

from __future__ import annotations

from cupy_backends.cuda.api import driver

from runtime.gpu.cuda.modules import CudaModules
from runtime.gpu.cuda.ptx_loader import KernelParameters
from runtime.gpu.driver import Enqueue, GpuStream
from runtime.gpu.triton.compilation import compiled
from runtime.gpu.work import TritonWork

#: CUfunction_attribute of cuda.h: the largest dynamic shared memory of a block. Without it, a kernel gets 48 KiB.
_MAX_DYNAMIC_SHARED_BYTES = 8
_USUAL_SHARED_BYTES = 48 << 10


def load_triton(work: TritonWork, arch: str, modules: CudaModules) -> Enqueue:
    """Bind the launch of ``work`` on a GPU of ``arch``.

    Triton's kernels have two pointers after the parameters of the source: to scratch memory, which these kernels do not
    use, and to a buffer for profiles. Both are null. Raises GpuLibraryError if Triton is missing, and PtxError if CUDA
    rejects the cubin.
    """
    cubin = compiled(work.launch, arch)
    function = driver.moduleGetFunction(modules.handle(cubin.image), cubin.entry)
    if cubin.shared_bytes > _USUAL_SHARED_BYTES:
        driver.funcSetAttribute(function, _MAX_DYNAMIC_SHARED_BYTES, cubin.shared_bytes)
    parameters = KernelParameters([*work.pointers, 0, 0])
    sizes = (work.launch.programs, 1, 1, cubin.threads, 1, 1, cubin.shared_bytes)

    def enqueue(stream: GpuStream) -> None:
        driver.launchKernel(function, *sizes, stream.ptr, parameters.address, 0)

    return enqueue
