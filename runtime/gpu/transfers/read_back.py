"""Download of scalars on which the host branches, through pinned memory."""

from __future__ import annotations

from collections.abc import Callable

from runtime.buffers.types import ArrayView
from runtime.gpu.command import GpuProgram
from runtime.timeline.events import Stream


def read_back(device: GpuProgram, array: ArrayView) -> Callable[[], int]:
    """Return a function that waits for the compute stream and returns the current value of the scalar ``array``.

    The scalar is an integer or a pred, whose value is 0 or 1.
    """
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
