"""Records of kernels that move elements: copies, slices, concatenations, pads, results that stay unwritten."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CopyKernel(Kernel):
    """results[0] = operands[0], element by element; same sizes and type, strides of their own."""


@dataclass(frozen=True)
class DynamicSliceKernel(Kernel):
    """results[0] = operands[0] from the start indices operands[1:]; starts are clamped so that the slice fits."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class DynamicUpdateSliceKernel(Kernel):
    """results[0] = operands[0] with operands[1] written at the start indices operands[2:], clamped to fit.

    results[0] may be the memory of operands[0].
    """


@dataclass(frozen=True)
class ConcatenateKernel(Kernel):
    """results[0] = operands one after the other along ``dimension``."""

    dimension: int


@dataclass(frozen=True)
class PadKernel(Kernel):
    """results[0] = operands[1], a scalar, except at ``target``, where it is operands[0][source]."""

    source: tuple[slice, ...]
    target: tuple[slice, ...]


@dataclass(frozen=True)
class UninitializedKernel(Kernel):
    """results[0] stays as it is."""
