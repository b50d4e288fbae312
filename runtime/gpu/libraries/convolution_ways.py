"""Formulations of an HLO convolution as a cuDNN operation, with the arrays in cuDNN's order of dimensions.

In HLO a forward convolution and its two gradients are all convolutions. They differ in their dilations: the gradient of
the input has the forward strides as base dilation. The gradient of the filter has them as window dilation, and its
window is as large as the forward result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from runtime.gpu.libraries.convolution_call import Direction
from runtime.program.records.convolution import (
    GroupConvolutionKernel,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
)
from runtime.program.records.copy import PadKernel
from runtime.program.strides import StridedView
from spmd.analysis.library_convolutions import reverses_filter
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape, PrimitiveType

ConvolutionKernel: TypeAlias = (
    PanelConvolutionKernel | GroupConvolutionKernel | PhaseConvolutionKernel
)

#: Roles of the first operand, the second operand and the result of a call.
ORDER = {
    Direction.FORWARD: ("image", "filter", "output"),
    Direction.INPUT: ("output", "filter", "image"),
    Direction.FILTER: ("image", "output", "filter"),
}


@dataclass(frozen=True)
class Way:
    """Formulation of an HLO convolution as operation ``direction`` of a forward convolution.

    window: spatial dimensions of that forward convolution's window. Paddings at the high ends follow from the sizes.
    arrays: the HLO arrays by their roles in it: image, filter and output.
    """

    direction: Direction
    window: tuple[WindowDimension, ...]
    arrays: dict[str, ConvolutionArray]


def ways(kernel: ConvolutionKernel, views: Sequence[StridedView]) -> Iterator[Way]:
    """Yield formulations of ``kernel``, the fastest first. ``views`` are its two operands and its result.

    The last formulation of a convolution with base dilation copies the first operand with all its zeros. cuDNN supports
    that for all sizes.
    """
    found = _Ways(kernel, views)
    if reverses_filter(_window(kernel)):
        yield found.input_gradient()
    if not found.is_dilated:
        yield found.filter_gradient() if found.is_filter_gradient else found.forward()
        return
    if all(dim.stride == 1 for dim in found.window):
        yield found.input_gradient()
    yield found.padded()


class _Ways:
    """Formulations of one convolution out[g, n, out.., f] of x[g, n, spatial.., c] and w[g, window.., c, f].

    g counts groups, n images, c input features and f output features.
    """

    def __init__(self, kernel: ConvolutionKernel, views: Sequence[StridedView]) -> None:
        self.x, self.w, self.out = map(ConvolutionArray, views)
        own = _window(kernel)
        self.rank = own.rank
        missing = max(0, 2 - own.rank)
        self.window = (*(WindowDimension(),) * missing, *own.dims)
        self.results = (*(1,) * missing, *views[2].dims[2:-1])
        self.is_dilated = own.has_holes
        #: Spatial dimensions along which the window is reversed, and along which it is not.
        self.backwards = [d for d, dim in enumerate(self.window) if dim.reversal]
        self.forwards = [d for d, dim in enumerate(self.window) if not dim.reversal]

    @property
    def is_filter_gradient(self) -> bool:
        """True if the convolution is probably the filter's gradient of another one.

        Its window is then larger than its result, and it sums over the images of the other convolution: x has the
        channels of that image as n and its batch as c. The batch varies more slowly in memory than the channels.
        """
        sizes = math.prod(dim.size for dim in self.window)
        strides = self.x.view.strides
        return sizes > math.prod(self.results) and abs(strides[1]) < abs(strides[-1])

    def forward(self) -> Way:
        """Return the formulation as a forward convolution."""
        output = self._in_order(self.out, 1, 0, 2 + self.rank)
        image = self._in_order(self.x, 1, 0, 2 + self.rank)
        return Way(
            Direction.FORWARD,
            _without_negatives(self.window),
            {
                "image": image.cut(self.window, self.results),
                "filter": self._filter(2 + self.rank, 1 + self.rank, self.backwards),
                "output": output,
            },
        )

    def padded(self) -> Way:
        """Return the formulation as a forward convolution of a copy of x that contains all zeros."""
        image = self._in_order(self.x, 1, 0, 2 + self.rank)
        return Way(
            Direction.FORWARD,
            tuple(replace(dim, padding_low=0, base_dilation=1) for dim in self.window),
            {
                "image": image.padded(self.window),
                "filter": self._filter(2 + self.rank, 1 + self.rank, self.backwards),
                "output": self._in_order(self.out, 1, 0, 2 + self.rank),
            },
        )

    def input_gradient(self) -> Way:
        """Return the formulation as the image's gradient of a convolution with the reversed filter.

        The strides of that convolution are the base dilations of this one.
        """
        window = tuple(
            WindowDimension(
                size=dim.size,
                stride=dim.base_dilation,
                window_dilation=dim.window_dilation,
                padding_low=dim.dilated_size - 1 - dim.padding_low,
            )
            for dim in self.window
        )
        return Way(
            Direction.INPUT,
            window,
            {
                "output": self._in_order(self.x, 1, 0, 2 + self.rank),
                "filter": self._filter(1 + self.rank, 2 + self.rank, self.forwards),
                "image": self._in_order(self.out, 1, 0, 2 + self.rank),
            },
        )

    def filter_gradient(self) -> Way:
        """Return the formulation as a filter's gradient.

        The strides of the differentiated convolution are the window dilations of this one and vice versa, and its
        window has the sizes of this result.
        """
        window = tuple(
            WindowDimension(
                size=size,
                stride=dim.window_dilation,
                window_dilation=dim.stride,
                padding_low=dim.padding_low,
            )
            for dim, size in zip(self.window, self.results, strict=True)
        )
        rank = self.rank
        output = self.w.ordered((1 + rank, 0, 2 + rank), 1, rank).reversed(self.backwards)
        image = self.x.ordered((2 + rank, 0, 1), 2, rank)
        return Way(
            Direction.FILTER,
            _without_negatives(window),
            {
                "image": image.cut(window, [dim.size for dim in self.window]),
                "output": output,
                "filter": self.out.ordered((0, 2 + rank, 1), 2, rank),
            },
        )

    def _in_order(self, array: ConvolutionArray, *first: int) -> ConvolutionArray:
        return array.ordered(first, 2, self.rank)

    def _filter(self, features: int, channels: int, dimensions: Sequence[int]) -> ConvolutionArray:
        return self.w.ordered((0, features, channels), 1, self.rank).reversed(dimensions)


@dataclass(frozen=True)
class ConvolutionArray:
    """Array of the program with its dimensions in the order of its role, and the groups g as a separate dimension.

    image[n, g, c, spatial..], filter[g, k, c, window..], output[n, g, k, spatial..]

    zeros: for each spatial dimension (index of the first element, distance between elements, size) in the array with
    zeros inserted around and between the elements; empty if none are inserted. ``dims`` includes the zeros.
    """

    view: StridedView
    zeros: tuple[tuple[int, int, int], ...] = ()

    @property
    def kind(self) -> PrimitiveType:
        """Element type of the array."""
        return self.view.element_type

    @property
    def dims(self) -> tuple[int, ...]:
        """Sizes of the array, including the zeros that are inserted."""
        dims = self.view.dims
        return (*dims[:3], *(size for *_, size in self.zeros)) if self.zeros else dims

    def ordered(self, first: Sequence[int], spatial: int, rank: int) -> ConvolutionArray:
        """Return the array transposed to its dimensions ``first``, followed by its spatial dimensions.

        The spatial dimensions are the ``rank`` dimensions from ``spatial`` on. If there are fewer than two, dimensions
        of size 1 are added, because cuDNN requires two.
        """
        view = self.view.transpose((*first, *range(spatial, spatial + rank)))
        missing = max(0, 2 - rank)
        ones, steps = (1,) * missing, (view.element_type.byte_size,) * missing
        dims = (*view.dims[:3], *ones, *view.dims[3:])
        strides = (*view.strides[:3], *steps, *view.strides[3:])
        return replace(self, view=replace(view, dims=dims, strides=strides))

    def reversed(self, dimensions: Sequence[int]) -> ConvolutionArray:
        """Return the array reversed along the spatial dimensions ``dimensions`` (0 is the first spatial one)."""
        view = self.view
        view_backwards = view.reverse(tuple(3 + d for d in dimensions if view.dims[3 + d] > 1))
        return replace(self, view=view_backwards)

    def cut(self, window: Sequence[WindowDimension], outputs: Sequence[int]) -> ConvolutionArray:
        """Return the image without the elements at its ends that negative padding removes.

        window: spatial dimensions of the window. outputs: sizes of the result along them. Elements at the end that no
        window reads, fewer than a stride, stay: cuDNN ignores them, and without them the image would not be dense.
        """
        starts, limits = [0] * 3, list(self.view.dims[:3])
        for dim, size, output in zip(window, self.view.dims[3:], outputs, strict=True):
            used = (output - 1) * dim.stride + dim.dilated_size - dim.padding_low
            starts.append(max(-dim.padding_low, 0))
            limits.append(size if size - used < dim.stride else used)
        view = self.view.slice(tuple(starts), tuple(limits), (1,) * len(starts))
        return replace(self, view=view)

    def padded(self, window: Sequence[WindowDimension]) -> ConvolutionArray:
        """Return the image with the zeros that the padding and the base dilation of ``window`` insert."""
        zeros = tuple(
            (
                dim.padding_low,
                dim.base_dilation,
                dim.padding_low + (size - 1) * dim.base_dilation + 1 + dim.padding_high,
            )
            for dim, size in zip(window, self.view.dims[3:], strict=True)
        )
        return replace(self, zeros=zeros)

    def pad_kernel(self) -> PadKernel:
        """Return the kernel that copies the array to one that contains ``zeros``, without elements that are cut off."""
        source, target = [slice(None)] * 3, [slice(None)] * 3
        for (low, step, size), count in zip(self.zeros, self.view.dims[3:], strict=True):
            first = max(0, -(low // step))
            end = min(count, max(first, -((low - size) // step)))
            source.append(slice(first, end))
            at = low + first * step
            target.append(slice(at, at + max(0, end - first - 1) * step + (end > first), step))
        return PadKernel(tuple(source), tuple(target))

    def merged_dims(self, role: str) -> tuple[int, ...]:
        """Return the sizes with the groups merged into the features: k of a filter, c of an image, k of an output."""
        a, b, c, *spatial = self.dims
        return (a * b, c, *spatial) if role == "filter" else (a, b * c, *spatial)

    def dense(self, role: str, kind: PrimitiveType, *, channels_last: bool) -> StridedView:
        """Return a dense view of the same sizes and element type ``kind``, in cuDNN's layout for ``role``."""
        spatial = tuple(range(3, len(self.dims)))
        order = (0, 1, 2, *spatial)
        if channels_last:
            order = (0, 1, *spatial, 2) if role == "filter" else (0, *spatial, 1, 2)
        return StridedView.dense_in_order(ArrayShape(kind, self.dims), order)

    def lies(self, role: str, *, channels_last: bool) -> bool:
        """Return whether the array is dense in cuDNN's layout for ``role``, and needs no zeros."""
        view = self.view
        dense = self.dense(role, self.kind, channels_last=channels_last)
        return not self.zeros and all(
            size == 1 or own == wanted
            for size, own, wanted in zip(view.dims, view.strides, dense.strides, strict=True)
        )


def _window(kernel: ConvolutionKernel) -> Window:
    return kernel.undivided.window if isinstance(kernel, PhaseConvolutionKernel) else kernel.window


def _without_negatives(window: tuple[WindowDimension, ...]) -> tuple[WindowDimension, ...]:
    """Return ``window`` without negative padding, which fits an image after ``cut``."""
    return tuple(replace(dim, padding_low=max(dim.padding_low, 0)) for dim in window)
