"""Copy elements from one layout to another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays


@dataclass(frozen=True)
class CopyKernel(Kernel):
    """results[0] = operands[0], element by element; same sizes and type, strides of their own."""


@NUMPY_KERNELS.binds(CopyKernel)
def bind_copy(_: CopyKernel, arrays: KernelArrays) -> Action:
    (source,), (target,) = arrays.operands, arrays.results

    def run() -> None:
        np.copyto(target, source)

    return run
