"""PTX kernels through CUDA's driver interface. Their launches allocate nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from cupy_backends.cuda.api import driver

from runtime.gpu.codegen.launch import PlacedLaunch
from runtime.gpu.cuda.modules import PtxModules
from runtime.gpu.driver import Enqueue, GpuBlock, GpuStream
from runtime.gpu.work import PtxWork

#: Dynamic shared memory of a block that needs no attribute.
_USUAL_SHARED_BYTES = 48 << 10


class PtxLoader:
    """Loader of one device's launches. modules: those of its GPU."""

    def __init__(self, allocate: Callable[[int], GpuBlock], modules: PtxModules) -> None:
        self._allocate, self._modules = allocate, modules
        # All kernels run in order on one stream, so they share one workspace, as large as the
        # largest needs.
        self._workspace: GpuBlock | None = None
        self._workspace_bytes = 0
        self._retained: list[GpuBlock] = []

    def load(self, work: PtxWork) -> Enqueue:
        launches = list(map(self._bound, work.placed))
        if len(launches) == 1:
            return launches[0]

        def enqueue(stream: GpuStream) -> None:
            for launch in launches:
                launch(stream)

        return enqueue

    def _bound(self, placed: PlacedLaunch) -> Enqueue:
        launch = placed.launch
        function = driver.moduleGetFunction(self._modules.handle(launch.text), launch.entry)
        if launch.shared_bytes > _USUAL_SHARED_BYTES:
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function, attribute, launch.shared_bytes)
        workspace = self._workspace_of(launch.workspace_bytes)
        parameters = _Parameters([workspace if p is None else p for p in placed.pointers])
        sizes = (*launch.grid, *launch.block, launch.shared_bytes)

        def enqueue(stream: GpuStream) -> None:
            driver.launchKernel(function, *sizes, stream.ptr, parameters.address, 0)

        return enqueue

    def _workspace_of(self, num_bytes: int) -> int:
        if num_bytes > self._workspace_bytes:
            self._workspace, self._workspace_bytes = self._allocate(num_bytes), num_bytes
            self._retained.append(self._workspace)  # earlier kernels retain theirs
        return 0 if self._workspace is None else self._workspace.address


class _Parameters:
    """Pointers to pointers for cuLaunchKernel; they live as long as the launch."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = (ctypes.c_uint64 * max(1, len(values)))(*values)
        first, width = ctypes.addressof(self._values), ctypes.sizeof(ctypes.c_uint64)
        addresses: list[Any] = [first + width * i for i in range(len(values))]
        self._addresses = (ctypes.c_void_p * max(1, len(values)))(*addresses)
        self.address = ctypes.addressof(self._addresses)
