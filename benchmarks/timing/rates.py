"""Rates of this machine when all its cores work at once: copies by working set, matrix products by shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Barrier
from typing import TypeAlias

import numpy as np

import runtime.cpu.kernels  # noqa: F401 - fills the library
from benchmarks.timing.turns import Work, seconds
from launch.calibration.timing import cores, each_at_once
from runtime.cpu.kernels.gemm.choose import plan_dot
from runtime.cpu.libraries.blas import BlasThreads
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Bytes of source and target together at which copies are timed, per core.
WORKING_SETS = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 27)
#: Bytes that each core receives when exchanges are timed, and their number: many, since few of them run in step.
EXCHANGED = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
EXCHANGES = 30
#: About how many seconds one figure may take.
PATIENCE = 0.05
REPEATS = 5


#: Pairs (bytes, rate), fewest bytes first.
BySize: TypeAlias = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class ProductShape:
    """Shape of ``batch`` products of [m, k] and [k, n] matrices; types of lhs, rhs and result."""

    batch: int
    m: int
    k: int
    n: int
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType] = (PrimitiveType.F32,) * 3

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.k * self.n


@dataclass
class Rates:
    """Rates of one core while all cores do the same work. Products are timed when they are first asked for."""

    #: (bytes of source and target, bytes read and written per second), by size.
    copies: BySize
    #: (bytes received, the same per second), by size, from what another core has just written.
    exchanges: BySize
    products: dict[ProductShape, float] = field(default_factory=dict)

    @staticmethod
    def measured() -> Rates:
        copies = tuple((size, _copy_rate(size)) for size in WORKING_SETS)
        return Rates(copies, tuple((size, _exchange_rate(size)) for size in EXCHANGED))

    def bandwidth(self, moved: float) -> float:
        """Return the bytes per second of a kernel that moves ``moved`` bytes, if nothing else was touched before."""
        return _between(self.copies, moved)

    def exchange(self, received: float) -> float:
        """Return the bytes per second of a device that receives ``received`` bytes from another one's memory."""
        return _between(self.exchanges, received)

    def flops(self, shape: ProductShape) -> float:
        """Return the flops per second of products of this shape.

        It is the better rate of BLAS and of the kernel that programs get here.
        """
        if shape not in self.products:
            works = [_library_product, _kernel_product]
            self.products[shape] = max(_product_rate(shape, work) for work in works)
        return self.products[shape]


def _between(rates: BySize, wanted: float) -> float:
    """Return the rate for ``wanted`` bytes, interpolated between the sizes that were timed.

    Seconds of a byte are linear in the logarithm of the size, and constant beyond the smallest and the largest size.
    """
    sizes, each = zip(*((math.log(size), 1 / rate) for size, rate in rates), strict=True)
    return 1 / float(np.interp(math.log(max(wanted, 1.0)), sizes, each))


def _copy_rate(size: int) -> float:
    def work() -> Callable[[], None]:
        source = np.ones(size // 2, np.uint8)
        target = np.empty_like(source)
        return lambda: np.copyto(target, source)

    return size / _together([work() for _ in range(cores())])


def _exchange_rate(size: int) -> float:
    """Return the bytes per second at which cores read what their neighbours have just written.

    It is the rate of the slowest core, in the best of many turns.
    """
    count = cores()
    sources = [np.ones(size, np.uint8) for _ in range(count)]
    targets = [np.empty_like(source) for source in sources]
    barrier = Barrier(count)

    def received(core: int) -> list[float]:
        found = []
        for turn in range(EXCHANGES):
            sources[core][...] = turn
            barrier.wait()
            found.append(seconds(partial(np.copyto, targets[core], sources[core - 1])))
            barrier.wait()
        return found

    with ThreadPoolExecutor(count) as pool:
        of_cores = list(pool.map(received, range(count)))
    best: float = min(max(turn) for turn in zip(*of_cores, strict=True))
    return size / best


def _product_rate(shape: ProductShape, work: Callable[[ProductShape], Work | None]) -> float:
    """Return the flops per second of products that ``work`` computes; 0 where it computes none of this shape."""
    with BlasThreads(1):
        works = [made for _ in range(cores()) if (made := work(shape)) is not None]
        return shape.flops / _together(works) if works else 0.0


def _matrices(shape: ProductShape) -> tuple[NDArray, NDArray, NDArray]:
    """Return operands, and an array for the result."""
    b, m, k, n = shape.batch, shape.m, shape.k, shape.n
    lhs, rhs, result = (kind.numpy for kind in shape.types)
    return np.ones((b, m, k), lhs), np.ones((b, k, n), rhs), np.empty((b, m, n), result)


def _library_product(shape: ProductShape) -> Work | None:
    if shape.types not in ((PrimitiveType.F32,) * 3, (PrimitiveType.F64,) * 3):
        return None
    lhs, rhs, out = _matrices(shape)
    return partial(np.matmul, lhs, rhs, out=out)


def _kernel_product(shape: ProductShape) -> Work | None:
    kernel = plan_dot((shape.batch,), (shape.m, shape.k, shape.n), shape.types)
    if kernel is None:
        return None
    lhs, rhs, out = _matrices(shape)
    scratch = tuple(np.zeros(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
    return CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,), scratch))


def _together(works: Sequence[Work]) -> float:
    """Return the seconds of one call where every work has a core of its own: least over REPEATS of the slowest."""
    works[0]()
    once = max(seconds(works[0]), 1e-7)
    times = max(1, int(PATIENCE / REPEATS / once))
    return min(max(each_at_once(works, partial(seconds, times=times))) for _ in range(REPEATS))
