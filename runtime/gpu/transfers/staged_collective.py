"""Collective of GPUs through their hosts: downloads to pinned memory, a collective between hosts, uploads.

The host waits for the downloads at the collective's start, and for the collective at its done. Work that is enqueued on
the compute stream runs meanwhile. The thread of the device does all of this; there are no callbacks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.communicator.kinds.op import Collective
from runtime.buffers.types import ArrayView, aligned
from runtime.gpu.command import GpuProgram
from runtime.gpu.views import DeviceView
from runtime.timeline.events import Stream
from spmd.literal import NDArray


class StagedCollective:
    """Pending collective through the host. ``finish`` without a preceding ``start`` does nothing."""

    def __init__(
        self,
        name: str,
        collective: Collective,
        device: GpuProgram,
        operands: Sequence[ArrayView],
        results: Sequence[ArrayView],
    ) -> None:
        self._driver, self._wait = device.driver, device.wait
        self._compute = device.stream(Stream.COMPUTE)
        self._stream = device.stream(Stream.COMMUNICATION)
        self._ready, self._over = self._driver.event(), self._driver.event()
        views = [device.view(array) for array in (*operands, *results)]
        staged = list(zip(_arrays(views, device), views, strict=True))
        self._operands, self._results = staged[: len(operands)], staged[len(operands) :]
        self._bound = device.communicator.bind(
            collective,
            name,
            [array for array, _ in self._operands],
            [array for array, _ in self._results],
        )
        self._is_started = False

    def start(self) -> None:
        """Download the operands, wait for that, and start the collective between hosts."""
        self._compute.record(self._ready)
        self._stream.wait_event(self._ready)
        for array, view in self._operands:
            self._driver.download(array, view.first, self._stream)
        self._wait(self._stream)
        self._bound.start()
        self._is_started = True

    def finish(self) -> None:
        """Wait for the collective between hosts, and make the compute stream wait for the upload of its results."""
        if not self._is_started:
            return
        self._bound.wait()
        for array, view in self._results:
            self._driver.upload(view.first, array, self._stream)
        self._stream.record(self._over)
        self._compute.wait_event(self._over)
        self._is_started = False


def _arrays(views: Sequence[DeviceView], device: GpuProgram) -> list[NDArray]:
    """Return row-major host arrays with the shapes and types of ``views``, in pinned memory of the communicator."""
    sizes = [aligned(view.view.byte_size) for view in views]
    memory = device.shared_pinned(sum(sizes))
    arrays, start = [], 0
    for view, size in zip(views, sizes, strict=True):
        shape = view.view
        assert shape.is_packed, "arrays of collectives lie row major"
        arrays.append(np.ndarray(shape.dims, shape.element_type.numpy, memory, start))
        start += size
    return arrays
