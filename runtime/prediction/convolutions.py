"""Convolutions: what is multiplied, brought into form and written, by the way in which the kernel does it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from runtime.kernels.gradient_convolution import GradientTiles, gradient_geometry
from runtime.kernels.group_convolution import GroupConvolutionKernel
from runtime.kernels.image_convolution import ImageTiles, geometry
from runtime.kernels.panel_convolution import PanelConvolutionKernel
from runtime.prediction.work import (
    NEAR,
    WORK,
    Access,
    Work,
    all_touched,
    element_seconds,
    stored_bytes,
)
from runtime.thunks.kernel import KernelThunk
from spmd.hlo import Opcode
from spmd.machine.convolutions import ConvolutionForm, ConvolutionParts
from spmd.machine.description import MachineDescription
from spmd.ops.window import Window

#: Sizes of x[g, n, spatial.., c], w[g, window.., c, f] and result[g, n, out.., f].
Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    window: Window
    x: Sizes
    w: Sizes
    out: Sizes


def parts_of(kernel: PanelConvolutionKernel, sizes: ConvolutionSizes) -> ConvolutionParts:
    """What one execution does."""
    if isinstance(kernel.tiles, ImageTiles):
        return _by_images(kernel.tiles, sizes)
    if isinstance(kernel.tiles, GradientTiles):
        return _by_gradients(kernel.tiles, sizes)
    return _by_panels(sizes)


def _by_images(tiles: ImageTiles, sizes: ConvolutionSizes) -> ConvolutionParts:
    """Lines of the input that are met are split once, or once for each block of features; the kernel is packed for
    every panel of lines; results of pieces of the channels are added up.
    """
    shape = geometry(sizes.window, sizes.x, sizes.out)
    assert shape is not None, "the lowering asked for it"
    groups, images, features = sizes.out[0], sizes.out[1], sizes.out[-1]
    pieces = shape.channels // tiles.channels
    most = shape.rows.axis.most_positions
    panels = -(-images // tiles.images) * -(-most // tiles.lines)
    ahead = shape.rows.most_ahead / tiles.lines if tiles.lines < most else 0.0
    times = -(-features // tiles.block_features) if panels > 1 else 1
    met = len(shape.rows.phases) / shape.rows.axis.stride
    split = times * images * shape.rows.axis.size * met * (1 + ahead) * shape.line_elements
    return ConvolutionParts(
        ConvolutionForm.IMAGE,
        float(groups * images * pieces * shape.of_channels(tiles.channels).multiplied(sizes.out)),
        groups * split,
        float(panels * math.prod(sizes.w)),
        float(pieces * math.prod(sizes.out)),
    )


def _by_gradients(tiles: GradientTiles, sizes: ConvolutionSizes) -> ConvolutionParts:
    """Both operands are split; results of each panel are added up."""
    shape = gradient_geometry(sizes.window, sizes.x, sizes.out)
    assert shape is not None, "the lowering asked for it"
    groups, channels, features, images = sizes.out[0], sizes.out[1], sizes.out[-1], sizes.x[-1]
    panels = -(-images // tiles.images) * -(-shape.rows.positions // tiles.lines)
    again = shape.plane_lines(tiles.lines) / tiles.lines
    positions = float(shape.rows.positions * shape.pitch * images)
    left = shape.phases * positions * channels * -(-features // tiles.features)
    right = positions * features * -(-channels // tiles.channels) * again
    return ConvolutionParts(
        ConvolutionForm.GRADIENT,
        float(groups * shape.multiplied(channels, images, features)),
        groups * left,
        groups * right,
        float(groups * panels * shape.taps * channels * features),
    )


def _by_panels(sizes: ConvolutionSizes) -> ConvolutionParts:
    """Every element of the result needs a row of the panels, which is as long as the window with its channels."""
    depth = math.prod(sizes.w[1:-1])
    rows = math.prod(sizes.out[:-1])
    return ConvolutionParts(
        ConvolutionForm.PANELS,
        float(rows * depth * sizes.out[-1]),
        float(rows * depth),
        math.prod(sizes.w),
        math.prod(sizes.out),
    )


@WORK.register(PanelConvolutionKernel)
def convolution_work(
    kernel: PanelConvolutionKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    x, w = (place.view.dims for place in thunk.operands)
    (result,) = thunk.results
    parts = parts_of(kernel, ConvolutionSizes(kernel.window, x, w, result.view.dims))
    seconds = machine.convolution_seconds(kernel.element_type, parts)
    known = machine.convolution_class(kernel.element_type, parts.form)
    far = 1.0 if known is None else known.far
    accesses = tuple(Access(place, stored_bytes(place), far) for place in (*thunk.operands, result))
    together = sum(access.size for access in accesses)
    return Work(accesses, seconds, loops=0.0, together=min(NEAR, together))


@WORK.register(GroupConvolutionKernel)
def group_work(
    kernel: GroupConvolutionKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    """Groups side by side: a multiplication and an addition for each element that meets another."""
    kind = kernel.element_type
    met = thunk.results[0].view.num_elements * math.prod(thunk.operands[1].view.dims[1:-1])
    return Work(all_touched(thunk), 2 * met * element_seconds(Opcode.ADD, kind, kind, machine))
