"""Work of matrix products, by the classes of products that a machine description has."""

from __future__ import annotations

import math

from runtime.buffers.types import ArrayView
from runtime.cpu.prediction.work import TIMED_BYTES, WORK, Access, Work, stored_bytes
from runtime.program.records.dot import DotKernel
from runtime.program.thunks import KernelThunk
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.machine.products import Transposed, class_for
from spmd.shape import PrimitiveType

#: Largest number of bytes of packed operands, which displace other data from the caches.
MOST_PACKED = 1 << 20


@WORK.register(DotKernel)
def product_work(kernel: DotKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    """Return the work of a batch of products.

    The seconds of a class hold for operands and results that are in the cache.
    """
    product = _as_computed(kernel, thunk)
    count = math.prod(kernel.batch)
    seconds = count * machine.product_seconds(
        product.types, product.sizes, product.transposed, tf32=kernel.tf32
    )
    known = class_for(machine.products, product.types, product.sizes)
    stored = [stored_bytes(array) for array in product.arrays]
    (lhs_packings, rhs_packings, blocks), slowdowns = (1, 1, 1), (1.0, 1.0, 1.0)
    if known is not None:
        lhs_packings, rhs_packings, blocks = known.passes(*product.sizes, product.transposed)
        slowdowns = known.uncached_slowdowns(product.transposed)
    times = (
        lhs_packings,
        rhs_packings,
        2 * blocks - 1,
    )  # a result that is added to is read and written
    accesses = tuple(
        Access(array, size, slowdown, (often - 1) * size)
        for array, size, slowdown, often in zip(
            product.arrays, stored, slowdowns, times, strict=True
        )
    )
    packed = min(MOST_PACKED, sum(stored[:2]) / max(count, 1))
    timed_bytes = min(TIMED_BYTES, sum(stored))
    return Work(accesses, seconds, loops=0.0, timed_bytes=timed_bytes, packed=packed)


@dataclass(frozen=True, slots=True)
class _Product:
    """Product of lhs and rhs: the types of lhs, rhs and the result, and the sizes m, k and n."""

    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType]
    sizes: tuple[int, int, int]
    transposed: Transposed
    arrays: tuple[ArrayView, ArrayView, ArrayView]


def _as_computed(kernel: DotKernel, thunk: KernelThunk) -> _Product:
    """Return the product as it is computed. A column-major result is computed as rhs^T lhs^T."""
    (lhs, rhs), (result,) = thunk.operands, thunk.results
    along = _is_along(lhs, -1), _is_along(rhs, -2)
    if _is_along(result, -1):
        types, sizes = (kernel.lhs, kernel.rhs, kernel.result), (kernel.m, kernel.k, kernel.n)
        return _Product(types, sizes, (not along[0], along[1]), (lhs, rhs, result))
    types, sizes = (kernel.rhs, kernel.lhs, kernel.result), (kernel.n, kernel.k, kernel.m)
    return _Product(types, sizes, (not along[1], along[0]), (rhs, lhs, result))


def _is_along(array: ArrayView, d: int) -> bool:
    """Return whether the elements of ``array`` are contiguous along dimension ``d``, as is any single element."""
    view = array.view
    return not view.dims or view.dims[d] == 1 or view.strides[d] == view.element_type.byte_size
