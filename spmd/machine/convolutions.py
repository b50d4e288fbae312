"""ConvolutionClass: seconds of convolutions, from counts of multiplied, packed and written elements."""

from __future__ import annotations

from enum import Enum

from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


class ConvolutionAlgorithm(Enum):
    """Way in which a convolution becomes products of matrices."""

    IMAGE = "image"
    """The input lies in planes, whose shifted rows are multiplied without packing."""
    GRADIENT = "gradient"
    """Large windows over many positions, few results: both operands are packed."""
    VECTORS = "vectors"
    """Windows are packed, a few rows at a time, and multiplied in vector registers."""
    VECTORS_BY_DEPTH = "vectors-by-depth"
    """The same for images side by side: rows of the packed matrix are elements of the window."""
    THIN = "thin"
    """Few features: vectors hold channels of the input, without packing."""
    PANELS = "panels"
    """Windows are copied next to each other."""


@dataclass(frozen=True, slots=True)
class ConvolutionParts:
    """Operation counts of one execution: multiplications (those of padded blocks included), elements of input and
    kernel that are packed, and elements of the result that are written or added to.
    """

    algorithm: ConvolutionAlgorithm
    multiplications: float
    inputs: float
    kernels: float
    results: float

    @property
    def counts(self) -> tuple[float, ...]:
        return (1.0, self.multiplications, self.inputs, self.kernels, self.results)


@dataclass(frozen=True, slots=True)
class ConvolutionClass:
    """Seconds of a call, and of each unit counted by ``ConvolutionParts``, for elements of ``kind`` in the nearest
    level.

    uncached_slowdown: of input and result from outer levels, relative to that of a copy.
    kernel_uncached: the same of the kernel, whose elements are packed in another order than they are stored.
    """

    algorithm: ConvolutionAlgorithm
    kind: PrimitiveType
    call_seconds: float
    multiply_seconds: float
    input_seconds: float
    kernel_seconds: float
    result_seconds: float
    uncached_slowdown: float = 1.0
    kernel_uncached: float = 1.0

    @property
    def coefficients(self) -> tuple[float, ...]:
        return (
            self.call_seconds,
            self.multiply_seconds,
            self.input_seconds,
            self.kernel_seconds,
            self.result_seconds,
        )

    def seconds(self, parts: ConvolutionParts) -> float:
        return sum(c * n for c, n in zip(self.coefficients, parts.counts, strict=True))
