"""Products of matrices, by the classes of products that a machine describes."""

from __future__ import annotations

import math

from runtime.kernels.dot import DotKernel
from runtime.prediction.work import NEAR, WORK, Access, Work, stored_bytes
from runtime.thunks.kernel import KernelThunk
from spmd.machine.description import MachineDescription
from spmd.machine.products import class_for

#: Bytes of operands in the form in which they are multiplied, which take others' place in the caches, at most.
MOST_PACKED = 1 << 20


@WORK.register(DotKernel)
def product_work(kernel: DotKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    """One after the other. A class's seconds hold for operands and results that have just been touched."""
    count = math.prod(kernel.batch)
    types, sizes = (kernel.lhs, kernel.rhs, kernel.result), (kernel.m, kernel.k, kernel.n)
    seconds = count * machine.product_seconds(types, sizes)
    known = class_for(machine.products, types, sizes)
    passes = (1, 1, 1) if known is None else known.passes(kernel.k, kernel.n)
    places = (*thunk.operands, *thunk.results)
    stored = [stored_bytes(place) for place in places]
    far = 1.0 if known is None else known.far
    accesses = tuple(
        Access(place, size, far, (times - 1) * size)
        for place, size, times in zip(places, stored, passes, strict=True)
    )
    packed = min(MOST_PACKED, sum(stored[:2]) / max(count, 1))
    near = min(NEAR, sum(stored))
    return Work(accesses, seconds, loops=0.0, together=near, packed=packed)
