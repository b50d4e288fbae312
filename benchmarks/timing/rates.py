"""What this machine can do when all its cores work at once: copies by working set, matrix products by shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier

import numpy as np

from benchmarks.timing.turns import seconds
from runtime.blas import limited_blas_threads

#: Bytes of source and target together at which copies are timed, per core.
WORKING_SETS = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 27)
#: Seconds that one figure may take, about.
PATIENCE = 0.05
REPEATS = 5


@dataclass(frozen=True, slots=True)
class ProductShape:
    """batch products of [m, k] and [k, n] matrices; ``dtype`` is what BLAS computes in."""

    batch: int
    m: int
    k: int
    n: int
    dtype: str = "float32"

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.k * self.n


def cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass
class Rates:
    """Of one core while all are at the same work. Products are timed when they are first asked for."""

    #: (bytes of source and target, bytes read and written per second), by size.
    copies: tuple[tuple[int, float], ...]
    products: dict[ProductShape, float] = field(default_factory=dict)

    @staticmethod
    def measured() -> Rates:
        return Rates(tuple((size, _copy_rate(size)) for size in WORKING_SETS))

    def bandwidth(self, moved: float) -> float:
        """Bytes per second for a kernel that moves ``moved`` bytes: of the next larger copy that was timed."""
        return next((rate for size, rate in self.copies if size >= moved), self.copies[-1][1])

    @property
    def exchange(self) -> float:
        """Bytes per second that a device receives from another one's memory: each is read and written."""
        return self.copies[-1][1] / 2

    def flops(self, shape: ProductShape) -> float:
        """Flops per second; the best of matrix products of this shape."""
        if shape not in self.products:
            self.products[shape] = _product_rate(shape)
        return self.products[shape]


def _copy_rate(size: int) -> float:
    def work() -> Callable[[], None]:
        source = np.ones(size // 2, np.uint8)
        target = np.empty_like(source)
        return lambda: np.copyto(target, source)

    return size / _together([work() for _ in range(cores())])


def _product_rate(shape: ProductShape) -> float:
    def work() -> Callable[[], None]:
        a = np.ones((shape.batch, shape.m, shape.k), shape.dtype)
        b = np.ones((shape.batch, shape.k, shape.n), shape.dtype)
        out = np.empty((shape.batch, shape.m, shape.n), shape.dtype)

        def run() -> None:
            np.matmul(a, b, out=out)

        return run

    with limited_blas_threads(1):
        return shape.flops / _together([work() for _ in range(cores())])


def _together(works: Sequence[Callable[[], None]]) -> float:
    """Seconds of one call where every work has a core of its own: least over REPEATS of the slowest."""
    works[0]()
    once = max(seconds(works[0]), 1e-7)
    times = max(1, int(PATIENCE / REPEATS / once))
    barrier = Barrier(len(works))

    def timed(work: Callable[[], None]) -> float:
        work()
        barrier.wait()
        return seconds(work, times)

    with ThreadPoolExecutor(len(works)) as pool:
        return min(max(pool.map(timed, works)) for _ in range(REPEATS))
