"""Implementation of GpuDriver with CuPy."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import nvtx, runtime
from cupy_backends.cuda.api import driver

from runtime.gpu.cuda.batched_factors import is_batched, load_batched_factors
from runtime.gpu.cuda.copies import load_copy
from runtime.gpu.cuda.gemm import Cublas
from runtime.gpu.cuda.gpu import CudaGpu, gpu_number
from runtime.gpu.cuda.ptx_loader import PtxLoader, compile_ptx
from runtime.gpu.cuda.triangular_solve import load_triangular_solve
from runtime.gpu.cuda.triton_loader import load_triton
from runtime.gpu.driver import Allocator, Enqueue, GpuEvent, GpuStream
from runtime.gpu.errors import GpuMemoryError, PtxError
from runtime.gpu.libraries.linalg_work import SolverWork, TriangularSolveWork
from runtime.gpu.libraries.tuning import Tuning
from runtime.gpu.triton.compilation import compiled
from runtime.gpu.work import (
    ConvolutionWork,
    CopyWork,
    FftWork,
    GemmWork,
    HorizontalWork,
    KernelWork,
    TritonWork,
    Work,
)
from spmd.errors import RunError
from spmd.literal import NDArray

if TYPE_CHECKING:
    from runtime.gpu.cuda.cudnn import Cudnn
    from runtime.gpu.cuda.solver import Cusolver

#: Priority of urgent streams. Lower numbers are higher priorities; CUDA clamps the number to the device's range.
_URGENT = -5


class CudaBlock:
    """GpuBlock of zeros from ``allocator``."""

    def __init__(self, num_bytes: int, gpu: CudaGpu, allocator: Allocator) -> None:
        with gpu.captures:
            memory = allocator(max(num_bytes, 1))
            self.address = int(memory.ptr)
            # Use a separate stream, since work on the default stream, or a wait for the whole device,
            # invalidates captures of other threads.
            runtime.memsetAsync(self.address, 0, num_bytes, gpu.clearing.ptr)
            gpu.clearing.synchronize()
        weakref.finalize(self, gpu.captures.free, memory).atexit = False


class CudaHostBlock:
    """GpuBlock of zeros in pinned host memory, which has the same address on the host and on the GPU."""

    ALIGNMENT = 256

    def __init__(self, memory: NDArray) -> None:
        memory[:] = 0
        self._memory = memory
        self.address = -(-memory.ctypes.data // self.ALIGNMENT) * self.ALIGNMENT


class CudaDriver:
    """GpuDriver of GPU number ``device`` among the GPUs that this process sees.

    tuning: measured choices of algorithms for matrix products; None: cuBLAS chooses.
    """

    failures = (runtime.CUDARuntimeError, driver.CUDADriverError, PtxError)

    def __init__(self, device: int, tuning: Tuning | None = None) -> None:
        self.device, self._tuning = device, tuning
        self.use()
        properties = runtime.getDeviceProperties(device)
        self.name: str = properties["name"].decode()
        self.arch = f"sm_{properties['major']}{properties['minor']}"
        self.multiprocessors = int(properties["multiProcessorCount"])
        self._gpu = gpu_number(device)
        self.captures = self._gpu.captures
        self._ptx = PtxLoader(self.allocate, self.arch, self._gpu.modules)
        self._retained: list[NDArray] = []

    @cached_property
    def _cublas(self) -> Cublas:
        return Cublas(self.allocate, self._write, self.captures, self.name, self._tuning)

    @cached_property
    def _cudnn(self) -> Cudnn:
        from runtime.gpu.cuda.cudnn import Cudnn  # loads cuDNN only when it is needed

        return Cudnn(self.allocate, self.captures)

    @cached_property
    def _cusolver(self) -> Cusolver:
        from runtime.gpu.cuda.solver import Cusolver  # loads cuSOLVER only when it is needed

        return Cusolver(self.allocate, self._write, self.captures)

    @property
    def free_bytes(self) -> int:
        self.use()
        return int(runtime.memGetInfo()[0])

    def use(self) -> None:
        cupy.cuda.Device(self.device).use()

    # ---- memory
    def allocate(self, num_bytes: int, allocator: Allocator | None = None) -> CudaBlock:
        # By default cudaMalloc, not CuPy's pool, since a block lives as long as its program.
        allocator = allocator or cupy.cuda.memory.Memory
        try:
            return CudaBlock(num_bytes, self._gpu, allocator)
        except (cupy.cuda.memory.OutOfMemoryError, runtime.CUDARuntimeError, RunError) as error:
            raise GpuMemoryError(
                f"{num_bytes:,} bytes of {self.name}{_free_bytes()}: {error}"
            ) from error

    def _write(self, address: int, array: NDArray) -> None:
        """Copy the host array ``array`` to ``address`` on the device. The copy is complete on return."""
        with self.captures:
            self.upload(address, array, self._gpu.clearing)
            self._gpu.clearing.synchronize()

    def allocate_on_host(self, num_bytes: int) -> CudaHostBlock:
        return CudaHostBlock(self.pinned(num_bytes + CudaHostBlock.ALIGNMENT))

    def pinned(self, num_bytes: int) -> NDArray:
        with self.captures:
            memory = cupy.cuda.alloc_pinned_memory(max(num_bytes, 1))
        return np.frombuffer(memory, np.uint8, num_bytes)

    def pin(self, memory: NDArray) -> None:
        address = memory.ctypes.data
        try:
            with self.captures:
                runtime.hostRegister(address, memory.nbytes, 0)
        except runtime.CUDARuntimeError:
            return  # not every mapping can be pinned; then copies block the host
        self._retained.append(memory)
        weakref.finalize(self, _unpin, address)

    # ---- streams
    def stream(self, *, urgent: bool = False) -> GpuStream:
        made: GpuStream = cupy.cuda.Stream(non_blocking=True, priority=_URGENT if urgent else None)
        return made

    def event(self, *, timed: bool = False) -> GpuEvent:
        made: GpuEvent = cupy.cuda.Event(disable_timing=not timed)
        return made

    def nanoseconds(self, first: GpuEvent, last: GpuEvent) -> int:
        return round(1e6 * float(cupy.cuda.get_elapsed_time(first, last)))

    # ---- copies
    def upload(self, target: int, source: NDArray, stream: GpuStream) -> None:
        runtime.memcpyAsync(
            target, source.ctypes.data, source.nbytes, runtime.memcpyHostToDevice, stream.ptr
        )

    def download(self, target: NDArray, source: int, stream: GpuStream) -> None:
        runtime.memcpyAsync(
            target.ctypes.data, source, target.nbytes, runtime.memcpyDeviceToHost, stream.ptr
        )

    def copy(self, target: int, source: int, num_bytes: int, stream: GpuStream) -> None:
        runtime.memcpyAsync(target, source, num_bytes, runtime.memcpyDefault, stream.ptr)

    # ---- work
    def load(self, work: Work) -> Enqueue:
        if isinstance(work, KernelWork | HorizontalWork):
            compile_ptx(work, self.arch)  # compile before taking the lock, since it takes long
        elif isinstance(work, TritonWork):
            compiled(work.launch, self.arch)
        with self.captures:
            return _LOADERS[type(work)](self, work)

    def load_kernel(self, work: KernelWork | HorizontalWork) -> Enqueue:
        return self._ptx.load(work)

    def load_gemm(self, work: GemmWork) -> Enqueue:
        return self._cublas.load(work)

    def load_convolution(self, work: ConvolutionWork) -> Enqueue:
        if work.otherwise is None or self._cudnn.has_kernel(work.convolution):
            return self._cudnn.load(work)
        first = self._cudnn.load(work.without_epilogue)
        then = self._ptx.load(work.otherwise)

        def enqueue(stream: GpuStream) -> None:
            first(stream)
            then(stream)

        return enqueue

    def load_triangular_solve(self, work: TriangularSolveWork) -> Enqueue:
        return load_triangular_solve(work, self._cublas)

    def load_factorization(self, work: SolverWork) -> Enqueue:
        if is_batched(work):
            return load_batched_factors(work, self._cublas, self.captures)
        return self._cusolver.load(work)

    def load_triton(self, work: TritonWork) -> Enqueue:
        return load_triton(work, self.arch, self._gpu.modules)

    def load_copy(self, work: CopyWork) -> Enqueue:
        return load_copy(work, self.device, self.captures)

    def load_fft(self, work: FftWork) -> Enqueue:
        from runtime.gpu.cuda.fft import load_fft  # loads cuFFT only when it is needed

        return load_fft(work, self.device, self.captures)

    def open_range(self, name: str) -> None:
        nvtx.RangePush(name)

    def close_range(self) -> None:
        nvtx.RangePop()


_LOADERS: dict[type[Work], Callable[[CudaDriver, Any], Enqueue]] = {
    KernelWork: CudaDriver.load_kernel,
    HorizontalWork: CudaDriver.load_kernel,
    GemmWork: CudaDriver.load_gemm,
    ConvolutionWork: CudaDriver.load_convolution,
    TritonWork: CudaDriver.load_triton,
    CopyWork: CudaDriver.load_copy,
    FftWork: CudaDriver.load_fft,
    TriangularSolveWork: CudaDriver.load_triangular_solve,
    SolverWork: CudaDriver.load_factorization,
}


def _free_bytes() -> str:
    """Return how many bytes of the device are free, as a part of a message; nothing if the device does not say."""
    try:
        return f", of which {runtime.memGetInfo()[0]:,} are free"
    except runtime.CUDARuntimeError:  # an allocation may report the error of an earlier kernel
        return ""


def _unpin(address: int) -> None:
    with contextlib.suppress(runtime.CUDARuntimeError):  # the device may be gone by now
        runtime.hostUnregister(address)
