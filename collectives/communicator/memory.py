"""Aligned memory of one rank."""

from __future__ import annotations

import numpy as np

from collectives.communicator.reduction import Array
from spmd.memory import out_of_memory, require_bytes

MEMORY_ALIGNMENT = 64
"""Allocated memory starts at a multiple of this many bytes, the line of a cache."""


def private_memory(num_bytes: int) -> Array:
    """Return memory for ``allocate`` that no peer can reach. Raises OutOfMemoryError if the machine has less."""
    require_bytes("the memory of one device", num_bytes)
    try:
        block = np.zeros(num_bytes + MEMORY_ALIGNMENT, np.uint8)
    except MemoryError:
        raise out_of_memory("the memory of one device", num_bytes) from None
    first = -block.ctypes.data % MEMORY_ALIGNMENT
    return block[first : first + num_bytes]
