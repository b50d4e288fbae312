"""A device's memory: where the slices of a program lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from runtime.buffers.types import ArrayView, BufferAllocation, BufferSlice, aligned
from runtime.strides import StridedView
from spmd.literal import NDArray
from spmd.shape import ArrayShape


class DeviceMemory:
    """One block of bytes; every allocation at an aligned place in it."""

    def __init__(
        self, allocations: Sequence[BufferAllocation], allocate: Callable[[int], NDArray]
    ) -> None:
        """``allocate``: bytes, zeros, aligned; a communicator's, so that collectives reach them."""
        self._starts: list[int] = []
        size = 0
        for allocation in allocations:
            self._starts.append(size)
            size += aligned(allocation.size)
        self._bytes = allocate(size)

    def array(self, place: ArrayView) -> NDArray:
        view = place.view
        start = self._starts[place.slice.allocation] + place.slice.offset + view.offset
        if view.num_elements == 0:
            return np.zeros(view.dims, view.element_type.numpy)
        return np.ndarray(view.dims, view.element_type.numpy, self._bytes, start, view.strides)

    def typed(self, allocation: int, shape: ArrayShape) -> NDArray:
        """The row-major array of ``shape`` that is allocation number ``allocation``."""
        view = StridedView.dense(shape)
        return self.array(ArrayView(BufferSlice(allocation, 0, view.byte_size), view))

    def bytes_of(self, allocation: BufferAllocation) -> NDArray:
        start = self._starts[allocation.index]
        return self._bytes[start : start + allocation.size]
