"""Work of convolutions: elements multiplied, packed and written by the kernel's algorithm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeAlias

from runtime.cpu.kernels.convolution.tile_gradient import split_gradient_elements
from runtime.cpu.kernels.convolution.tile_gradient_geometry import gradient_geometry
from runtime.cpu.kernels.convolution.tile_image import split_image_elements
from runtime.cpu.kernels.convolution.tile_image_geometry import geometry
from runtime.cpu.prediction.work import (
    TIMED_BYTES,
    WORK,
    Access,
    Work,
    all_touched,
    stored_bytes,
)
from runtime.program.records.convolution import (
    GradientTiles,
    GroupConvolutionKernel,
    ImageTiles,
    LeftLayout,
    PanelConvolutionKernel,
    VectorPlan,
)
from runtime.program.thunks import KernelThunk
from spmd.cost.elements import element_seconds
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.convolutions import ConvolutionAlgorithm, ConvolutionClass, ConvolutionParts
from spmd.machine.description import MachineDescription
from spmd.ops.window import Window

#: Sizes of an array: x[g, n, spatial.., c], w[g, window.., c, f] or result[g, n, out.., f].
Sizes = tuple[int, ...]
#: Plan of an algorithm other than panels.
Plan: TypeAlias = ImageTiles | GradientTiles | VectorPlan


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """Window of a convolution, and the sizes of its operands and result."""

    window: Window
    x: Sizes
    w: Sizes
    out: Sizes


def parts_of(sizes: ConvolutionSizes, plan: Plan | None) -> ConvolutionParts:
    """Return the operation counts of one execution by ``plan``, or by panels if that is None."""
    if isinstance(plan, ImageTiles):
        return _by_images(plan, sizes)
    if isinstance(plan, GradientTiles):
        return _by_gradients(plan, sizes)
    if isinstance(plan, VectorPlan):
        return _by_vectors(plan, sizes)
    return _by_panels(sizes)


def plan_on(kernel: PanelConvolutionKernel, machine: MachineDescription) -> Plan | None:
    """Return the plan of ``kernel`` whose algorithm ``machine`` describes, or None for panels.

    On any machine, kernels have plans for all units.
    """
    for plan in (kernel.tiles, kernel.vectors):
        if plan is not None:
            known = machine.convolution_class(kernel.element_type, _algorithm_of(plan))
            if known is not None:
                return plan
    return None


def _algorithm_of(plan: Plan) -> ConvolutionAlgorithm:
    if isinstance(plan, VectorPlan):
        by_depth = plan.left is LeftLayout.DEPTH
        return ConvolutionAlgorithm.VECTORS_BY_DEPTH if by_depth else ConvolutionAlgorithm.VECTORS
    gradient = isinstance(plan, GradientTiles)
    return ConvolutionAlgorithm.GRADIENT if gradient else ConvolutionAlgorithm.IMAGE


def _by_images(tiles: ImageTiles, sizes: ConvolutionSizes) -> ConvolutionParts:
    """Count the operations by images.

    Input lines are split once, or once per block of features. The kernel is packed for every panel of lines, and the
    results of pieces of the channels are accumulated.
    """
    plain = geometry(sizes.window, sizes.x, sizes.out)
    assert plain is not None, "the lowering asked for it"
    shape = plain.of_channels(tiles.channels).arranged(tiles.arrangement)
    assert shape is not None, "the plan is of this shape"
    groups, images, features = sizes.out[0], sizes.out[1], sizes.out[-1]
    pieces = plain.channels // tiles.channels
    panels = -(-images // tiles.images) * -(-shape.rows.axis.most_positions // tiles.lines)
    return ConvolutionParts(
        ConvolutionAlgorithm.IMAGE,
        groups * images * pieces * shape.multiplied(features),
        groups * pieces * split_image_elements(tiles, shape, images, features),
        float(panels * math.prod(sizes.w)),
        float(pieces * math.prod(sizes.out)),
    )


def _by_gradients(tiles: GradientTiles, sizes: ConvolutionSizes) -> ConvolutionParts:
    """Count the operations of a gradient. Both operands are split, and the results of all panels are accumulated."""
    plain = gradient_geometry(sizes.window, sizes.x, sizes.out)
    assert plain is not None, "the lowering asked for it"
    shape = replace(plain, group_pairs=tiles.interleaved_pairs)
    groups, channels, features, images = sizes.out[0], sizes.out[1], sizes.out[-1], sizes.x[-1]
    panels = -(-images // tiles.images) * -(-shape.rows.window // tiles.lines)
    left, right = split_gradient_elements(tiles, shape, channels, images, features)
    return ConvolutionParts(
        ConvolutionAlgorithm.GRADIENT,
        float(groups * shape.multiplied(channels, images, features)),
        groups * left,
        groups * right,
        float(groups * panels * math.prod(sizes.out[1:])),
    )


def _by_vectors(plan: VectorPlan, sizes: ConvolutionSizes) -> ConvolutionParts:
    """Count the operations by vectors.

    Rows are packed once per block of features, and blocks of a deep window are accumulated. Results that go through a
    buffer are written twice.
    """
    depth = math.prod(sizes.w[1:-1])
    rows, features = math.prod(sizes.out[:-1]), sizes.out[-1]
    columns = plan.micro_kernel.columns * -(-features // plan.micro_kernel.columns)
    written = -(-depth // plan.depth) + bool(plan.buffered)
    return ConvolutionParts(
        _algorithm_of(plan),
        float(rows * depth * columns),
        float(rows * depth * -(-features // plan.features)),
        math.prod(sizes.w),
        float(rows * features * written),
    )


def _by_panels(sizes: ConvolutionSizes) -> ConvolutionParts:
    """Count the operations by panels. Every result position packs a row of window times channels elements."""
    depth = math.prod(sizes.w[1:-1])
    rows = math.prod(sizes.out[:-1])
    return ConvolutionParts(
        ConvolutionAlgorithm.PANELS,
        float(rows * depth * sizes.out[-1]),
        float(rows * depth),
        math.prod(sizes.w),
        math.prod(sizes.out),
    )


@WORK.register(PanelConvolutionKernel)
def convolution_work(
    kernel: PanelConvolutionKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    x, w = (array.view.dims for array in thunk.operands)
    (result,) = thunk.results
    sizes = ConvolutionSizes(kernel.window, x, w, result.view.dims)
    parts = parts_of(sizes, plan_on(kernel, machine))
    seconds = machine.convolution_seconds(kernel.element_type, parts)
    known = machine.convolution_class(kernel.element_type, parts.algorithm)
    return work_of_class(thunk, seconds, known)


def work_of_class(thunk: KernelThunk, seconds: float, known: ConvolutionClass | None) -> Work:
    """Return the work of a convolution of class ``known``, which takes ``seconds`` with arrays in the cache."""
    slowdown, of_kernel = (
        (1.0, 1.0) if known is None else (known.uncached_slowdown, known.kernel_uncached)
    )
    x, w = thunk.operands
    accesses = (
        *(Access(array, stored_bytes(array), slowdown) for array in (x, *thunk.results)),
        Access(w, stored_bytes(w), of_kernel),
    )
    touched_bytes = sum(access.size for access in accesses)
    return Work(accesses, seconds, loops=0.0, timed_bytes=min(TIMED_BYTES, touched_bytes))


@WORK.register(GroupConvolutionKernel)
def group_work(
    kernel: GroupConvolutionKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    """Return the work of adjacent groups: a multiplication and an addition for each pair of elements."""
    kind = kernel.element_type
    met = thunk.results[0].view.num_elements * math.prod(thunk.operands[1].view.dims[1:-1])
    return Work(all_touched(thunk), 2 * met * element_seconds(Opcode.ADD, kind, kind, machine))
