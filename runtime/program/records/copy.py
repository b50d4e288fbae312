"""Records of kernels that move elements: copies, dynamic slices, concatenations and pads."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CopyKernel(Kernel):
    """results[0] = operands[0], element by element. Both have the same sizes and type, and any strides."""


@dataclass(frozen=True)
class DynamicSliceKernel(Kernel):
    """results[0] = the slice of ``sizes`` of operands[0] that begins at the scalar indices operands[1:].

    Indices are clamped so that the slice is in bounds, as HLO defines it.
    """

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class DynamicUpdateSliceKernel(Kernel):
    """results[0] = operands[0], in which the slice that begins at the scalar indices operands[2:] is operands[1].

    Indices are clamped so that the slice is in bounds, as HLO defines it. results[0] may be the memory of operands[0].
    """


@dataclass(frozen=True)
class ConcatenateKernel(Kernel):
    """results[0] = the concatenation of the operands along ``dimension``."""

    dimension: int


@dataclass(frozen=True)
class PadKernel(Kernel):
    """results[0] is operands[0][source] at the indices ``target``, and the scalar operands[1] at all other indices."""

    source: tuple[slice, ...]
    target: tuple[slice, ...]


@dataclass(frozen=True)
class UninitializedKernel(Kernel):
    """Kernel that does nothing: the content of results[0] is undefined."""
