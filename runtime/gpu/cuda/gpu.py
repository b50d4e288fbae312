"""State of one GPU that all its drivers in this process share."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import cupy

from runtime.gpu.captures import CaptureLock
from runtime.gpu.cuda.modules import CudaModules, load_cuda

_MAKING = threading.Lock()


class CudaGpu:
    """State of the calling thread's current GPU that its drivers share.

    captures: lock for captures. modules: loaded modules. clearing: stream on which new memory is set to zero.
    """

    def __init__(self) -> None:
        self.captures = CaptureLock()
        self.modules = CudaModules(load_cuda())
        self.clearing: Any = cupy.cuda.Stream(non_blocking=True)


def gpu_number(device: int) -> CudaGpu:
    """Return the shared state of GPU number ``device``, which must be the calling thread's current device."""
    with _MAKING:
        return _gpu(device)


@cache
def _gpu(device: int) -> CudaGpu:
    return CudaGpu()
