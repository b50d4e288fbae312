"""About how long a kernel takes one thread: enough to tell what is worth another thread's while."""

from __future__ import annotations

import math

from runtime.kernel import Kernel, KernelArrays
from runtime.kernels.dot import DotKernel
from spmd.machine.named import machine_named


def seconds_alone(kernel: Kernel, arrays: KernelArrays) -> float:
    """On the machine that compilations assume by default: to move its bytes, or to multiply.

    What computes more than it moves is taken to be shorter than it is, and then shared from larger sizes on.
    """
    machine = machine_named()
    num_bytes = sum(array.nbytes for array in (*arrays.operands, *arrays.results))
    moving = num_bytes / machine.level_for(num_bytes).bandwidth
    if not isinstance(kernel, DotKernel):
        return moving
    flops = 2.0 * math.prod(kernel.batch) * kernel.m * kernel.k * kernel.n
    return max(moving, flops / machine.rates_of(kernel.compute).matrix)
