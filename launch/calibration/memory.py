"""Memory of probes, allocated as that of programs: consecutive arrays in large blocks, which may have huge pages."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from collectives.communicator.actions.shared_buffers import private_memory
from runtime.buffers.types import ALIGNMENT
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Fewest bytes of a block: huge pages pay only if a block has several of them.
BLOCK_BYTES = 8 << 20
#: Bytes that each core touches between two uses of an array that counts as uncached. All cores together touch more than
#: the last-level cache holds, so that operands come from memory as in a large program.
UNCACHED_BYTES = 32 << 20


class Arena:
    """Allocator of arrays. A block of memory is freed when the arena and all arrays in the block are."""

    def __init__(self) -> None:
        """Create an arena without memory."""
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
        """Return an array of normally distributed numbers (integers: times 20).

        A processor needs more power, and hence more time, for such numbers than for ones.
        """
        found = self.array(dims, kind.numpy)
        values = np.resize(_normal(seed % 4), found.size).reshape(dims)
        found[...] = (values * 20 if kind.is_integer else values).astype(kind.numpy)
        return found

    def activations(self, dims: tuple[int, ...], kind: PrimitiveType, seed: int = 0) -> NDArray:
        """Return normally distributed numbers of which negative ones are 0, as the results of a ReLU.

        Multiplying them takes an eighth less time than ``numbers``: the processor needs less power (Xeon, AMX).
        """
        found = self.numbers(dims, kind, seed)
        np.maximum(found, 0, out=found)
        return found


@cache
def _normal(seed: int) -> NDArray:
    """Return 4096 normally distributed f32 numbers."""
    return np.random.default_rng(seed).standard_normal(1 << 12).astype(np.float32)
