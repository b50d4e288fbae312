"""Scalars that the host decides by: read back through pinned memory."""

from __future__ import annotations

from collections.abc import Callable

from runtime.buffers.types import ArrayView
from runtime.gpu.step import GpuProgram
from runtime.timeline.events import Stream


def read_back(device: GpuProgram, place: ArrayView) -> Callable[[], int]:
    """The integer or truth value that lies at ``place`` when the compute stream has come so far: waits for that."""
    view, driver = device.view(place), device.driver
    dtype = place.view.element_type.numpy
    memory = driver.pinned(dtype.itemsize)
    value = memory.view(dtype)
    stream = device.stream(Stream.COMPUTE)

    def read() -> int:
        driver.download(memory, view.first, stream)
        device.wait(stream)
        return int(value[0])

    return read
