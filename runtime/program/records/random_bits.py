"""Record of the kernel of rng-bit-generator."""

from __future__ import annotations

import math
from enum import Enum

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


class Algorithm(Enum):
    """Counter-based random number generator: Threefry-2x32 or Philox-4x32, as in XLA."""

    THREEFRY = 2
    PHILOX = 4

    @property
    def block(self) -> int:
        """Number of 32-bit numbers that one value of the counter yields."""
        return self.value


@dataclass(frozen=True)
class RandomBitsKernel(Kernel):
    """Generation of random integers of type ``kind`` from the state operands[0].

    results[-1] is the row-major array of integers. If there are two results, results[0] is the state afterwards.
    """

    algorithm: Algorithm
    kind: PrimitiveType


def split_dimension(dims: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the dimension of an array of sizes ``dims`` along which Threefry's pairs of numbers are adjacent elements.

    It is given as (elements of all outer dimensions, its size, elements of all inner dimensions), as XLA chooses it:
    the first dimension of even size, else the largest one.
    """
    dims = dims or (1,)
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    along = even[0] if even else dims.index(max(dims))
    return math.prod(dims[:along]), dims[along], math.prod(dims[along + 1 :])
