"""A device's memory: the bytes of a program's allocations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from collectives.communicator.interface import Communicator
from runtime.arrays.resident import DeviceArray
from runtime.buffers.types import ArrayView, BufferAllocation, BufferSlice, aligned
from runtime.program.strides import StridedView
from spmd.literal import NDArray
from spmd.shape import ArrayShape


class DeviceMemory:
    """Memory of one device: its own block, with every allocation at an aligned offset, and blocks shared with peers.

    All of it comes from the communicator, so that collectives can access it. Bytes are zeros at first.
    """

    def __init__(self, allocations: Sequence[BufferAllocation], communicator: Communicator) -> None:
        """Allocate the memory. ``allocations``: in order of their indices, the same on every rank."""
        starts, size = [], 0
        for allocation in allocations:
            starts.append(size)
            size += 0 if allocation.color.groups else aligned(allocation.size)
        self._device = communicator.rank
        own = communicator.allocate(size)
        self._blocks: list[NDArray] = []
        for allocation, start in zip(allocations, starts, strict=True):
            if allocation.color.groups:
                sharers = allocation.color.group_of(communicator.rank)
                self._blocks.append(communicator.allocate_shared(allocation.size, sharers))
            else:
                self._blocks.append(own[start : start + allocation.size])

    def array(self, array_view: ArrayView) -> NDArray:
        view = array_view.view
        if view.num_elements == 0:
            return np.zeros(view.dims, view.element_type.numpy)
        block = self._blocks[array_view.slice.allocation]
        start = array_view.slice.start_on(self._device) + view.offset
        return np.ndarray(view.dims, view.element_type.numpy, block, start, view.strides)

    def typed(self, allocation: int, shape: ArrayShape) -> NDArray:
        """Return allocation number ``allocation`` as a row-major array of ``shape``."""
        view = StridedView.dense(shape)
        return self.array(ArrayView(BufferSlice(allocation, 0, view.byte_size), view))

    def bytes_of(self, allocation: BufferAllocation) -> NDArray:
        return self._blocks[allocation.index]

    # ---- as a ProgramMemory
    def fill(self, tile: NDArray, fill: Callable[[NDArray], None]) -> None:
        fill(tile)

    def allocate_like(self, tile: NDArray) -> NDArray:
        return np.empty_like(tile)

    def bring(self, tile: NDArray, array: DeviceArray) -> None:
        np.copyto(tile, array.view())
