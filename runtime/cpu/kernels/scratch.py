"""Scratch arrays of kernels, with the alignment that native code relies on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from collectives.communicator.actions.shared_buffers import private_memory
from spmd.literal import NDArray


def new_scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    """Allocate a scratch array of zeros, aligned as a device's memory. Raises OutOfMemoryError if that fails.

    NumPy's arrays have multiples of 16 bytes, where native code stores vectors of 64.
    """
    data = private_memory(math.prod(shape) * dtype.itemsize)
    return data.view(dtype).reshape(shape)
