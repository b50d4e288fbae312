"""Record of a convolution or of one of its gradients, in cuDNN's terms."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from runtime.program.kernel import Kernel
from runtime.program.strides import dense_strides
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


class Direction(Enum):
    """Array that a call computes from the other two. The values are cuDNN's names of the operations."""

    FORWARD = "fprop"  # image, filter -> output
    INPUT = "dgrad"  # output, filter -> image
    FILTER = "wgrad"  # image, output -> filter


@dataclass(frozen=True, slots=True)
class ConvolutionEpilogue:
    """Epilogue of a forward convolution: output + addend + bias, or the maximum of that and 0 if ``relu`` is True.

    The addend lies like the output, and the bias has an element for each of the k features. Both have its type.
    """

    addend: bool = False
    bias: bool = False
    relu: bool = False


@dataclass(frozen=True)
class LibraryConvolution(Kernel):
    """Convolution, or the gradient of one that ``direction`` selects, of dense arrays of ``element_type``.

    The operands and the result have the roles that ``ORDER`` (convolution_ways.py) gives for ``direction``. With
    image[n, c, spatial..], filter[k, c / groups, window..] and output[n, k, spatial..] the forward convolution is

        output[n, k, o..] = sum over c, t.. of image[n, c, o * stride + t * dilation - before] * filter[k, c, t..]

    image, filter, output: sizes of these arrays. before, after: number of zeros at both ends of each spatial dimension
    of the image. sums: type of the accumulators. channels_last: c varies fastest in memory in all arrays (NHWC),
    otherwise the last spatial dimension (NCHW). tf32: f32 operands may be rounded to TF32. epilogue: what the same call
    computes of the result.
    """

    direction: Direction
    image: tuple[int, ...]
    filter: tuple[int, ...]
    output: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    element_type: PrimitiveType
    sums: PrimitiveType
    channels_last: bool
    tf32: bool = False
    epilogue: ConvolutionEpilogue | None = None

    @property
    def arrays(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Sizes of the first operand, the second operand and the result."""
        return {
            Direction.FORWARD: (self.image, self.filter, self.output),
            Direction.INPUT: (self.output, self.filter, self.image),
            Direction.FILTER: (self.image, self.output, self.filter),
        }[self.direction]

    def strides_of(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Return the strides, in elements, of a dense array of sizes ``dims`` in the call's layout."""
        if not self.channels_last:
            return dense_strides(tuple(dims), 1)
        images, *spatial, channels = dense_strides((dims[0], *dims[2:], dims[1]), 1)
        return (images, channels, *spatial)
