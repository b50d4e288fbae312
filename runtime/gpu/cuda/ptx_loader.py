"""Loading and launching of PTX kernels by CUDA's driver interface. A launch allocates nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from cupy_backends.cuda.api import driver

from runtime.gpu.codegen.launch import PlacedLaunch
from runtime.gpu.codegen.ptx_module import ptx_text
from runtime.gpu.cuda.modules import CudaModules
from runtime.gpu.driver import Enqueue, GpuBlock, GpuStream
from runtime.gpu.work import HorizontalWork, KernelWork


class PtxLoader:
    """Loader of the PTX kernels of one device.

    allocate: allocates device memory. arch: architecture of the GPU, for example sm_90. modules: modules of the GPU.
    """

    def __init__(
        self, allocate: Callable[[int], GpuBlock], arch: str, modules: CudaModules
    ) -> None:
        self._allocate, self._arch, self._modules = allocate, arch, modules
        # All kernels run in order on one stream, so they share a workspace, which has the size of
        # the largest one requested so far.
        self._workspace: GpuBlock | None = None
        self._workspace_bytes = 0
        self._retained: list[GpuBlock] = []

    def load(self, work: KernelWork | HorizontalWork) -> Enqueue:
        """Bind the launches of ``work``, which run in order. Raises PtxError if CUDA rejects the PTX text."""
        launches = list(map(self._bound, work.placed))
        if len(launches) == 1:
            return launches[0]

        def enqueue(stream: GpuStream) -> None:
            for launch in launches:
                launch(stream)

        return enqueue

    def _bound(self, placed: PlacedLaunch) -> Enqueue:
        launch = placed.launch
        text = ptx_text(launch.ir, self._arch)
        function = driver.moduleGetFunction(self._modules.handle(text.encode()), launch.entry)
        workspace = self._workspace_of(launch.workspace_bytes)
        parameters = KernelParameters([workspace if p is None else p for p in placed.pointers])
        sizes = (launch.blocks, 1, 1, launch.threads, 1, 1, 0)

        def enqueue(stream: GpuStream) -> None:
            driver.launchKernel(function, *sizes, stream.ptr, parameters.address, 0)

        return enqueue

    def _workspace_of(self, num_bytes: int) -> int:
        if num_bytes > self._workspace_bytes:
            self._workspace, self._workspace_bytes = self._allocate(num_bytes), num_bytes
            self._retained.append(self._workspace)  # earlier kernels retain theirs
        return 0 if self._workspace is None else self._workspace.address


def compile_ptx(work: KernelWork | HorizontalWork, arch: str) -> None:
    """Compile the launches of ``work`` to PTX and cache the texts, so that a later load does not compile."""
    for each in work.placed:
        ptx_text(each.launch.ir, arch)


class KernelParameters:
    """Array of pointers to parameters, as cuLaunchKernel takes it. The object owns the array and the parameters."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = (ctypes.c_uint64 * max(1, len(values)))(*values)
        first, width = ctypes.addressof(self._values), ctypes.sizeof(ctypes.c_uint64)
        addresses: list[Any] = [first + width * i for i in range(len(values))]
        self._addresses = (ctypes.c_void_p * max(1, len(values)))(*addresses)
        self.address = ctypes.addressof(self._addresses)
