"""Staging: copies between host arrays and device memory through pinned memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from runtime.gpu.driver import GpuDriver, GpuStream
from spmd.literal import NDArray

#: Bytes of pinned memory for arrays in transfer; a larger array is copied in parts.
STAGING_BYTES = 32 << 20


class Staging:
    """Synchronous copies of entire arrays between steps, through ``num_bytes`` of pinned memory.

    Any thread may call it, but only one at a time.
    """

    def __init__(
        self, driver: GpuDriver, stream: GpuStream, num_bytes: int = STAGING_BYTES
    ) -> None:
        self.driver, self.stream = driver, stream
        self._memory = driver.pinned(num_bytes)

    def send(self, address: int, array: NDArray) -> None:
        """Copy the elements of ``array``, in row-major order, to ``address`` on the device."""
        self.driver.use()
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, data.size, self._memory.size):
            part = data[start : start + self._memory.size]
            own = self._memory[: part.size]
            np.copyto(own, part)
            self.driver.upload(address + start, own, self.stream)
            self.stream.synchronize()

    def fill(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        fill: Callable[[NDArray], None],
    ) -> None:
        """Call ``fill`` to write an array of ``shape`` and ``dtype``, and copy that array to ``address`` on the device.

        If the array fits in the pinned memory, ``fill`` writes it there, which avoids a copy.
        """
        self.driver.use()
        size = _byte_size(shape, dtype)
        if size > self._memory.size:
            array = np.empty(shape, dtype)
            fill(array)
            self.send(address, array)
            return
        own = self._memory[:size]
        fill(own.view(dtype).reshape(shape))
        self.driver.upload(address, own, self.stream)
        self.stream.synchronize()

    def fetch(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
        """Return a new host array of ``shape`` and ``dtype`` with the values at ``address`` on the device."""
        self.driver.use()
        array = np.empty(shape, dtype)
        data = array.reshape(-1).view(np.uint8)
        for start in range(0, data.size, self._memory.size):
            part = data[start : start + self._memory.size]
            own = self._memory[: part.size]
            self.driver.download(own, address + start, self.stream)
            self.stream.synchronize()
            np.copyto(part, own)
        return array

    def move(self, target: int, source: int, num_bytes: int) -> None:
        """Copy ``num_bytes`` from ``source`` to ``target`` within the device."""
        if num_bytes:
            self.driver.use()
            self.driver.copy(target, source, num_bytes, self.stream)
            self.stream.synchronize()


def _byte_size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
