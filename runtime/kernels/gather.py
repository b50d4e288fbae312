"""Gathers of whole rows: the one form that embeddings and lookups have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.kernel import NUMPY_KERNELS, Action, Kernel, KernelArrays


@dataclass(frozen=True)
class TakeKernel(Kernel):
    """results[0][i..] = operands[0][operands[1][i..]], rows along dimension 0; indices are clamped into range."""


@NUMPY_KERNELS.binds(TakeKernel)
def bind_take(_: TakeKernel, arrays: KernelArrays) -> Action:
    table, indices = arrays.operands
    (out,) = arrays.results

    def run() -> None:
        np.take(table, indices, axis=0, out=out, mode="clip")

    return run
