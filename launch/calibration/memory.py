"""Arrays that begin where those of programs do: at a line of the caches."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from runtime.buffers.types import ALIGNMENT
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


def aligned(dims: tuple[int, ...], dtype: np.dtype[np.generic], value: float = 0.0) -> NDArray:
    """Row major, ``value`` everywhere."""
    size = math.prod(dims) * dtype.itemsize
    block = np.empty(size + ALIGNMENT, np.uint8)
    first = -block.ctypes.data % ALIGNMENT
    found: NDArray = block[first : first + size].view(dtype).reshape(dims)
    found[...] = value
    return found


def numbers(dims: tuple[int, ...], kind: PrimitiveType, seed: int = 0) -> NDArray:
    """An array of such as programs compute with: a processor takes more power, and time, for them than for ones."""
    block = _normal(seed % 4)
    found = aligned(dims, kind.numpy)
    values = np.resize(block, found.size).reshape(dims)
    found[...] = (values * 20 if kind.is_integer else values).astype(kind.numpy)
    return found


@cache
def _normal(seed: int) -> NDArray:
    return np.random.default_rng(seed).standard_normal(1 << 12).astype(np.float32)
