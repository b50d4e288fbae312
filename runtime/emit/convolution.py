"""convolution as matrix products of panels where native code can do it, else as those of whole patch matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from runtime.blas import gemm_function
from runtime.buffers.types import ArrayView
from runtime.codegen.llvm_convolution import SPATIAL
from runtime.emit.dot import is_for_blas
from runtime.emit.reference import emit_reference
from runtime.kernels.panel_convolution import PanelConvolutionKernel
from runtime.lowering import LOWERINGS, Device, Lowering, StepArrays, Views
from runtime.strides import StridedView
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import ConvolutionAttrs
from spmd.ops.window import Window
from spmd.shape import ArrayShape

#: A panel takes at most this many bytes (it should stay in a core's second-level cache),
MOST_PANEL_BYTES = 1 << 19
#: and no more than this part of operands and result, but
PANEL_PART = 8
LEAST_PANEL_BYTES = 1 << 11
#: Products deeper than this (or, with the panel's rows inside, higher) are cut.
MOST_INSIDE = 1024


@dataclass(frozen=True)
class _Canonical:
    """x[g, n, spatial.., c], w[g, window.., c, f] and out[g, n, out.., f]; g counts feature or batch groups.

    Where w lies backwards along a window's dimension, it is read forwards, and the window goes the other way.
    """

    window: Window
    x: StridedView
    w: StridedView
    out: StridedView

    def rows(self) -> tuple[int, ...]:
        """The result's dimensions that lie evenly spaced, with its columns in BLAS's order: as many as possible."""
        order = _slowest_first(self.out, range(1, len(self.out.dims) - 1))
        while not is_for_blas(_as_matrix(self.out, order)):
            order = order[1:]
        return order

    def depth(self) -> tuple[int, ...] | None:
        """The dimensions of w that become one; None where they lie otherwise."""
        order = _slowest_first(self.w, range(1, len(self.w.dims) - 1))
        return order if is_for_blas(_as_matrix(self.w, order)) else None


def _slowest_first(view: StridedView, dimensions: range) -> tuple[int, ...]:
    """Dimensions of size 1 lie anywhere: they stand as they would in a dense array."""
    strides = {}
    step = view.element_type.byte_size
    for d in reversed(dimensions):
        if view.dims[d] > 1:
            step = abs(view.strides[d])
        strides[d] = step
    return tuple(sorted(dimensions, key=lambda d: -strides[d]))


def _as_matrix(view: StridedView, rows: tuple[int, ...]) -> StridedView | None:
    """[rows, last dimension] of the first index of all others, or None where no strides say it."""
    last = len(view.dims) - 1
    order = (*rows, last)
    part = StridedView(
        view.element_type,
        tuple(view.dims[d] for d in order),
        tuple(view.strides[d] for d in order),
        view.offset,
    )
    return part.reshape((math.prod(part.dims[:-1]), part.dims[-1]))


def _split(view: StridedView, dimension: int, groups: int) -> StridedView:
    """``dimension`` as (groups, the rest), the groups moved to the front."""
    size, stride = view.dims[dimension] // groups, view.strides[dimension]
    dims, strides = list(view.dims), list(view.strides)
    dims[dimension] = size
    return StridedView(view.element_type, (groups, *dims), (size * stride, *strides), view.offset)


def _canonical(instruction: HloInstruction, views: Views) -> _Canonical:
    attrs = instruction.attrs_as(ConvolutionAttrs)
    dims = attrs.dimension_numbers
    groups = attrs.feature_group_count * attrs.batch_group_count
    x = views[0].transpose((dims.input_batch, *dims.input_spatial, dims.input_feature))
    w = views[1].transpose(
        (*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature)
    )
    backwards = tuple(i for i in range(attrs.window.rank) if w.strides[i] < 0)
    window = [
        replace(dim, reversal=dim.reversal is not (i in backwards))
        for i, dim in enumerate(attrs.window.dims)
    ]
    out = StridedView.dense(instruction.array_shape).transpose(
        (dims.output_batch, *dims.output_spatial, dims.output_feature)
    )
    last = len(x.dims) - 1
    return _Canonical(
        Window(tuple(window)),
        _split(x, 0 if attrs.batch_group_count > 1 else last, groups),
        _split(w.reverse(backwards), last, groups),
        _split(out, last, groups),
    )


def _is_supported(instruction: HloInstruction) -> bool:
    attrs = instruction.attrs_as(ConvolutionAttrs)
    shapes = (
        instruction.array_shape,
        *(operand.array_shape for operand in instruction.operands),
    )
    kind = instruction.array_shape.element_type
    return (
        all(shape.element_type is kind and math.prod(shape.dims) > 0 for shape in shapes)
        and gemm_function(kind) is not None
        and attrs.window.rank <= SPATIAL
        and min(attrs.feature_group_count, attrs.batch_group_count) == 1
    )


def _kernel(instruction: HloInstruction, views: Views) -> PanelConvolutionKernel | None:
    """None where an operand must be laid out anew."""
    canonical = _canonical(instruction, views)
    x, w, out = canonical.x, canonical.w, canonical.out
    rows, depth = canonical.rows(), canonical.depth()
    if depth is None:
        return None
    item = x.element_type.byte_size
    # Runs go through x without gaps: along its features, or along its batch.
    features, batch = len(w.dims) - 2, 1
    by_features = depth[-1] == features and (x.dims[-1] == 1 or x.strides[-1] == item)
    by_batch = rows[-1] == batch and (x.dims[1] == 1 or x.strides[1] == item)
    if not by_features and not by_batch:
        return None
    inside = by_features and (not by_batch or x.dims[-1] >= x.dims[1])
    row_sizes, depth_sizes = [out.dims[d] for d in rows], [w.dims[d] for d in depth]
    inner, outer = (depth_sizes, row_sizes) if inside else (row_sizes, depth_sizes)
    total = x.byte_size + w.byte_size + out.byte_size
    panel = max(min(total // PANEL_PART, MOST_PANEL_BYTES), LEAST_PANEL_BYTES) // item
    most_inside = min(MOST_INSIDE, max(panel // 8, 64))
    runs = min(math.prod(inner[:-1]), max(most_inside // inner[-1], 1))
    return PanelConvolutionKernel(
        x.element_type,
        canonical.window,
        rows,
        depth,
        inside,
        inner[-1],
        runs,
        min(math.prod(outer), max(panel // (runs * inner[-1]), 1)),
    )


def layouts(instruction: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Features fastest in x, and output features in w, where nothing else will do."""
    if not _is_supported(instruction) or _kernel(instruction, views) is not None:
        return {}
    dims = instruction.attrs_as(ConvolutionAttrs).dimension_numbers
    x = (dims.input_batch, *dims.input_spatial, dims.input_feature)
    w = (*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature)
    orders = {0: x, 1: w}
    for only in ({0: x}, {1: w}):
        (leaf,) = only
        laid_out = list(views)
        shape = ArrayShape(views[leaf].element_type, views[leaf].dims)
        laid_out[leaf] = StridedView.dense_in_order(shape, only[leaf])
        if _kernel(instruction, tuple(laid_out)) is not None:
            return only
    return orders


def scratch(instruction: HloInstruction, views: Views) -> tuple[ArrayShape, ...]:
    if not _is_supported(instruction):
        return ()
    kernel = _kernel(instruction, views)
    assert kernel is not None
    return (ArrayShape(kernel.element_type, (kernel.panel_elements,)),)


def emit_convolution(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    if not _is_supported(instruction):
        return emit_reference(instruction, arrays, device)
    views = tuple(array.view for array in arrays.operands)
    kernel = _kernel(instruction, views)
    assert kernel is not None
    canonical = _canonical(instruction, views)
    (x, w), (out,) = arrays.operands, arrays.results
    return KernelThunk(
        instruction.name,
        kernel,
        (ArrayView(x.slice, canonical.x), ArrayView(w.slice, canonical.w)),
        (ArrayView(out.slice, canonical.out),),
        arrays.scratch,
    )


LOWERINGS.add(Opcode.CONVOLUTION, Lowering(emit_convolution, layouts=layouts, scratch=scratch))
