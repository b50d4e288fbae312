"""Record of Fourier transforms."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class FftKernel(Kernel):
    """results[0] = the transform of operands[0] over its last ``rank`` dimensions; inverse ones divide by their points.

    ``type``: FFT, IFFT, RFFT or IRFFT, whose result has ``length`` elements in the last dimension. The result of an FFT
    or IFFT may be the operand's memory. scratch: as much as the
    operand, if a complex operand of several dimensions gives real numbers; then, if lines are transformed in batches,
    a buffer for the largest batch.
    """

    type: str
    rank: int
    length: int
    complex_type: PrimitiveType
