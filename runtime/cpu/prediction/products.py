"""Products of matrices, by the classes of products that a machine describes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.cpu.prediction.work import NEAR, WORK, Access, Work, stored_bytes
from runtime.program.records.dot import DotKernel
from runtime.program.thunks.kernel import KernelThunk
from spmd.machine.description import MachineDescription
from spmd.machine.products import Turned, class_for
from spmd.shape import PrimitiveType

#: Bytes of operands in the form in which they are multiplied, which take others' place in the caches, at most.
MOST_PACKED = 1 << 20


@WORK.register(DotKernel)
def product_work(kernel: DotKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    """One after the other. A class's seconds hold for operands and results that have just been touched."""
    product = _as_computed(kernel, thunk)
    count = math.prod(kernel.batch)
    seconds = count * machine.product_seconds(
        product.types, product.sizes, product.turned, tf32=kernel.tf32
    )
    known = class_for(machine.products, product.types, product.sizes)
    stored = [stored_bytes(place) for place in product.places]
    (lhs_packings, rhs_packings, blocks), far = (1, 1, 1), (1.0, 1.0, 1.0)
    if known is not None:
        lhs_packings, rhs_packings, blocks = known.passes(*product.sizes, product.turned)
        far = known.far(product.turned)
    times = (
        lhs_packings,
        rhs_packings,
        2 * blocks - 1,
    )  # a result that is added to is read and written
    accesses = tuple(
        Access(place, size, slowdown, (often - 1) * size)
        for place, size, slowdown, often in zip(product.places, stored, far, times, strict=True)
    )
    packed = min(MOST_PACKED, sum(stored[:2]) / max(count, 1))
    near = min(NEAR, sum(stored))
    return Work(accesses, seconds, loops=0.0, together=near, packed=packed)


@dataclass(frozen=True, slots=True)
class _Product:
    """Product: types of lhs, rhs and the result; sizes m, k and n."""

    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType]
    sizes: tuple[int, int, int]
    turned: Turned
    places: tuple[ArrayView, ArrayView, ArrayView]


def _as_computed(kernel: DotKernel, thunk: KernelThunk) -> _Product:
    """A result that lies column by column is computed as rhs^T lhs^T."""
    (lhs, rhs), (result,) = thunk.operands, thunk.results
    along = _is_along(lhs, -1), _is_along(rhs, -2)
    if _is_along(result, -1):
        types, sizes = (kernel.lhs, kernel.rhs, kernel.result), (kernel.m, kernel.k, kernel.n)
        return _Product(types, sizes, (not along[0], along[1]), (lhs, rhs, result))
    types, sizes = (kernel.rhs, kernel.lhs, kernel.result), (kernel.n, kernel.k, kernel.m)
    return _Product(types, sizes, (not along[1], along[0]), (rhs, lhs, result))


def _is_along(place: ArrayView, d: int) -> bool:
    """Return whether there are no gaps along that dimension; a number has none."""
    view = place.view
    return not view.dims or view.dims[d] == 1 or view.strides[d] == view.element_type.byte_size
