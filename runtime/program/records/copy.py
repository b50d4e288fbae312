"""Records of kernels that move elements: copies, dynamic slices, concatenations and pads."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CopyKernel(Kernel):
    """Copy of operands[0] to results[0], element by element. Both have the same sizes and type, and any strides."""


@dataclass(frozen=True)
class DynamicSliceKernel(Kernel):
    """Dynamic slice: results[0] = the slice of ``sizes`` of operands[0] that begins at the scalar indices operands[1:].

    Indices are clamped so that the slice is in bounds, as HLO defines it.
    """

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class DynamicUpdateSliceKernel(Kernel):
    """Update of a slice: results[0] = operands[0], with operands[1] at the scalar start indices operands[2:].

    Indices are clamped so that the slice is in bounds, as HLO defines it. results[0] may be the memory of operands[0].
    """


@dataclass(frozen=True)
class ConcatenateKernel(Kernel):
    """Concatenation of the operands along ``dimension``, written to results[0]."""

    dimension: int


@dataclass(frozen=True)
class PadKernel(Kernel):
    """Padding: results[0] is operands[0][source] at the indices ``target``, and the scalar operands[1] elsewhere."""

    source: tuple[slice, ...]
    target: tuple[slice, ...]


@dataclass(frozen=True)
class UninitializedKernel(Kernel):
    """Kernel that does nothing: the content of results[0] is undefined."""
