"""DeviceTile: the memory of one array on a GPU; on a processor ``DeviceArray`` has a NumPy array instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from runtime.arrays.slots import TileMemory
from runtime.gpu.transfers.staging import Staging
from spmd.literal import NDArray


class DeviceTile:
    """Row-major array at ``address``; ``keep`` holds its memory if that is its own (a TileMemory)."""

    __slots__ = ("_staging", "address", "dtype", "keep", "shape")

    def __init__(
        self,
        staging: Staging,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        keep: object = None,
    ) -> None:
        self._staging = staging
        self.address = address
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.keep = keep

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, /, *, copy: bool | None = None) -> NDArray:
        """Return the values, read back from the device."""
        if copy is False:
            raise ValueError("an array on a GPU cannot be read without a copy")
        values = self._staging.fetch(self.address, self.shape, self.dtype)
        return values if dtype is None else values.astype(dtype)

    def copy(self) -> DeviceTile:
        """Return the same values in their own device memory."""
        other = self.empty_like()
        self._staging.move(other.address, self.address, self.nbytes)
        return other

    def empty_like(self) -> DeviceTile:
        block = self._staging.driver.allocate(max(self.nbytes, 1))
        return DeviceTile(self._staging, block.address, self.shape, self.dtype, block)

    def fill(self, fill: Callable[[NDArray], None]) -> None:
        self._staging.fill(self.address, self.shape, self.dtype, fill)

    def copy_from(self, source: TileMemory) -> None:
        """Copy the values of ``source``, which is on this device or in the host's memory."""
        if isinstance(source, DeviceTile) and source._staging.driver is self._staging.driver:
            self._staging.move(self.address, source.address, self.nbytes)
        else:
            self._staging.send(self.address, np.asarray(source))
