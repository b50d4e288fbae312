"""Record of Fourier transforms."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.program.kernel import Kernel
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class FftKernel(Kernel):
    """results[0] = the transform of operands[0] over its last ``rank`` dimensions; inverse ones divide by their points.

    ``type``: FFT, IFFT, RFFT or IRFFT, whose result has ``length`` elements in the last dimension. The result of an FFT
    or IFFT may be the operand's memory. scratch: where a complex operand of several dimensions gives real numbers, as
    much as the operand; then, where lines are transformed in bundles, a buffer for the longest bundle.
    """

    type: str
    rank: int
    length: int
    complex_type: PrimitiveType
