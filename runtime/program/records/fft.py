"""Record of discrete Fourier transforms."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class FftKernel(Kernel):
    """Discrete Fourier transform of operands[0] over its last ``rank`` dimensions, written to results[0].

    type: FFT, IFFT, RFFT or IRFFT. Inverse transforms divide by the number of points. length: number of points along
    the last dimension. complex_type: type of the complex operand or result. The result of an FFT or IFFT may be the
    memory of the operand. scratch: for an IRFFT of several dimensions an array like the operand; then, if lines are
    transformed in batches, a buffer for the largest batch.
    """

    type: str
    rank: int
    length: int
    complex_type: PrimitiveType
