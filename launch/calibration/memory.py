"""Memory as programs have it: large blocks, which the system may back by large pages, arrays one behind the other."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from collectives.communicator.actions.shared_buffers import private_memory
from runtime.buffers.types import ALIGNMENT
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Least bytes of a block: large pages pay only if a block has several.
BLOCK_BYTES = 8 << 20
#: Bytes that a core touches between two uses of an array that counts as uncached. All cores do so, which is more than
#: the last shared cache holds, so that operands come from memory as those of a large program.
UNCACHED_BYTES = 32 << 20


class Arena:
    """Memory for arrays, which is freed with the last array in it."""

    def __init__(self) -> None:
        self._block = private_memory(0)
        self._used = 0

    def array(
        self, dims: tuple[int, ...], dtype: np.dtype[np.generic], value: float = 0.0
    ) -> NDArray:
        """Return a row-major array that is aligned to a cache line and filled with ``value``."""
        size = math.prod(dims) * dtype.itemsize
        if self._used + size > self._block.size:
            self._block, self._used = private_memory(max(size, BLOCK_BYTES)), 0
        found: NDArray = self._block[self._used : self._used + size].view(dtype).reshape(dims)
        self._used += -(-size // ALIGNMENT) * ALIGNMENT
        found[...] = value
        return found

    def numbers(self, dims: tuple[int, ...], kind: PrimitiveType, seed: int = 0) -> NDArray:
        """Return an array of numbers as in real programs: a processor needs more power, and time, for them than for
        ones.
        """
        found = self.array(dims, kind.numpy)
        values = np.resize(_normal(seed % 4), found.size).reshape(dims)
        found[...] = (values * 20 if kind.is_integer else values).astype(kind.numpy)
        return found


@cache
def _normal(seed: int) -> NDArray:
    return np.random.default_rng(seed).standard_normal(1 << 12).astype(np.float32)
