"""Copies within a device: packed arrays by CUDA's memcpy, strided arrays by CuPy's kernels."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from runtime.gpu.captures import CaptureLock
from runtime.gpu.driver import Enqueue, GpuStream
from runtime.gpu.views import DeviceView
from runtime.gpu.work import CopyWork

#: Size of an element in bytes -> type as which it is copied, since CuPy does not have all of HLO's types.
_UNITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


def load_copy(work: CopyWork, device: int, captures: CaptureLock) -> Enqueue:
    """Bind a copy on GPU number ``device``. A copy of strided arrays holds the lock ``captures`` while it enqueues."""
    source, target = work.source, work.target
    if source.view.is_packed and target.view.is_packed:
        return _moving(target.first, source.first, target.view.byte_size)
    to, of = _array(target, device), _array(source, device)

    def enqueue(stream: GpuStream) -> None:
        # The first call compiles a kernel in CuPy and loads it.
        with captures, stream:  # type: ignore[attr-defined]
            cupy.copyto(to, of)

    return enqueue


def _moving(target: int, source: int, num_bytes: int) -> Enqueue:
    kind = runtime.memcpyDefault  # one of the two may be in the host's memory

    def enqueue(stream: GpuStream) -> None:
        if target != source:
            runtime.memcpyAsync(target, source, num_bytes, kind, stream.ptr)

    return enqueue


def _array(view: DeviceView, device: int) -> Any:
    return cupy_array(view, device, np.dtype(_UNITS[view.view.element_type.byte_size]))


def cupy_array(view: DeviceView, device: int, dtype: np.dtype[Any]) -> Any:
    """Return a CuPy array on the memory of ``view`` on GPU number ``device``.

    ``dtype`` must have the size of the view's elements. The array does not own the memory.
    """
    span, shape = view.span, view.view
    memory = cupy.cuda.UnownedMemory(span.start, span.size, None, device)
    pointer = cupy.cuda.MemoryPointer(memory, view.first - span.start)
    return cupy.ndarray(shape.dims, dtype, pointer, shape.strides)
