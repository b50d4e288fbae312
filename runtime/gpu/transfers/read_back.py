"""Scalars that the host needs for decisions, read back through pinned memory."""

from __future__ import annotations

from collections.abc import Callable

from runtime.buffers.types import ArrayView
from runtime.gpu.command import GpuProgram
from runtime.timeline.events import Stream


def read_back(device: GpuProgram, array: ArrayView) -> Callable[[], int]:
    """Return a function that waits for the compute stream and returns the integer or truth value at ``array``."""
    view, driver = device.view(array), device.driver
    dtype = array.view.element_type.numpy
    memory = driver.pinned(dtype.itemsize)
    value = memory.view(dtype)
    stream = device.stream(Stream.COMPUTE)

    def read() -> int:
        driver.download(memory, view.first, stream)
        device.wait(stream)
        return int(value[0])

    return read
