"""Record of a convolution, or of one of its gradients, as cuDNN computes it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


class Direction(Enum):
    """The array that is computed from the other two. The values are cuDNN's names."""

    FORWARD = "fprop"  # image, filter -> output
    INPUT = "dgrad"  # output, filter -> image
    FILTER = "wgrad"  # image, output -> filter


@dataclass(frozen=True)
class LibraryConvolution(Kernel):
    """results[0] = the convolution or gradient that ``direction`` names, of dense arrays of ``element_type``.

    With image[n, c, spatial..], filter[k, c / groups, window..] and output[n, k, spatial..] the forward one is

        output[n, k, o..] = sum over c, t.. of image[n, c, o * stride + t * dilation - before] * filter[k, c, t..]

    ``image``, ``filter`` and ``output`` are these sizes. channels_last: c (of filters c, too) varies fastest in memory,
    otherwise the last spatial dimension. before, after: zeros at the ends of each spatial dimension of the image. sums:
    their type. tf32: f32 operands may be rounded to TF32.
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

    @property
    def arrays(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The sizes of both operands and of the result, in this order."""
        return {
            Direction.FORWARD: (self.image, self.filter, self.output),
            Direction.INPUT: (self.output, self.filter, self.image),
            Direction.FILTER: (self.image, self.output, self.filter),
        }[self.direction]

    def strides_of(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Return the strides, in elements, of an array of these sizes."""
        order = [0, *range(2, len(dims)), 1] if self.channels_last else range(len(dims))
        strides, step = [0] * len(dims), 1
        for d in reversed(order):
            strides[d] = step
            step *= dims[d]
        return tuple(strides)
