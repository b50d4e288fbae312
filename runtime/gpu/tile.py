"""Memory of one array on a GPU. On a CPU, ``DeviceArray`` has a NumPy array instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from runtime.arrays.slots import TileMemory
from runtime.gpu.transfers.staging import Staging
from spmd.literal import NDArray


class DeviceTile:
    """Row-major array at ``address`` of a GPU (a TileMemory).

    ``keep`` is the block that owns the memory: the tile's own one, or that of a program, which an output may outlive.
    """

    __slots__ = ("_staging", "address", "dtype", "keep", "shape")

    def __init__(
        self,
        staging: Staging,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        keep: object,
    ) -> None:
        self._staging = staging
        self.address = address
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.keep = keep

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, /, *, copy: bool | None = None) -> NDArray:
        """Return a NumPy array with the values, downloaded from the device. Raises ValueError if ``copy`` is False."""
        if copy is False:
            raise ValueError("an array on a GPU cannot be read without a copy")
        values = self._staging.fetch(self.address, self.shape, self.dtype)
        return values if dtype is None else values.astype(dtype)

    def copy(self) -> DeviceTile:
        """Return a tile with equal values in newly allocated device memory."""
        other = self.empty_like()
        self._staging.move(other.address, self.address, self.nbytes)
        return other

    def empty_like(self) -> DeviceTile:
        """Allocate device memory for an array of this shape and type."""
        block = self._staging.driver.allocate(max(self.nbytes, 1))
        return DeviceTile(self._staging, block.address, self.shape, self.dtype, block)

    def fill(self, fill: Callable[[NDArray], None]) -> None:
        """Call ``fill`` with a host array of this shape and type to write, then upload that array."""
        self._staging.fill(self.address, self.shape, self.dtype, fill)

    def copy_from(self, source: TileMemory) -> None:
        """Copy the values of ``source``, which is on this device or in the host's memory."""
        if isinstance(source, DeviceTile) and source._staging.driver is self._staging.driver:
            self._staging.move(self.address, source.address, self.nbytes)
        else:
            self._staging.send(self.address, np.asarray(source))
