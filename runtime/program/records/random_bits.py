"""Record of random bits."""

from __future__ import annotations

import math
from enum import Enum

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


class Algorithm(Enum):
    """``block``: 32-bit numbers that one counter gives."""

    THREEFRY = 2
    PHILOX = 4

    @property
    def block(self) -> int:
        return self.value


@dataclass(frozen=True)
class RandomBitsKernel(Kernel):
    """results[-1] = integers of ``kind``, row-major; results[0], where there are two, = the state operands[0] after."""

    algorithm: Algorithm
    kind: PrimitiveType


def split_dimension(dims: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (outer rows, size, inner elements) of the dimension along which Threefry pairs elements."""
    dims = dims or (1,)
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    along = even[0] if even else dims.index(max(dims))
    return math.prod(dims[:along]), dims[along], math.prod(dims[along + 1 :])
