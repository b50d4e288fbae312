"""convolution as matrix products of panels, in a type that BLAS has; complex ones by the reference evaluator."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.convolution.grouped_form import GroupConvolutionKernel
from runtime.cpu.kernels.convolution.ir.panel_ir import SPATIAL
from runtime.cpu.kernels.convolution.panel_form import PanelConvolutionKernel
from runtime.cpu.kernels.convolution.phase_form import PhaseConvolutionKernel
from runtime.cpu.kernels.convolution.phase_geometry import has_holes
from runtime.cpu.kernels.convolution.tile_gradient_form import GradientTiles, gradient_tiles
from runtime.cpu.kernels.convolution.tile_gradient_geometry import gradient_geometry
from runtime.cpu.kernels.convolution.tile_image_form import ImageTiles, image_tiles
from runtime.cpu.kernels.convolution.tile_image_geometry import geometry
from runtime.cpu.kernels.convolution.vector_form import vector_plan
from runtime.cpu.kernels.gemm.dot import compute_type
from runtime.cpu.libraries.blas import gemm_function
from runtime.emit.convolution_matrices import CanonicalConvolution
from runtime.emit.convolution_phases import Whole, in_phases, is_thin
from runtime.emit.reference import emit_reference
from runtime.lowering import LOWERINGS, Device, Lowering, StepArrays, Views
from runtime.program.strides import StridedView
from runtime.program.thunks.kernel import KernelThunk
from runtime.program.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import ConvolutionAttrs
from spmd.ops.window import Window
from spmd.shape import ArrayShape, PrimitiveType

#: A panel takes at most this many bytes (it should stay in a core's second-level cache),
MOST_PANEL_BYTES = 1 << 19
#: and no more than this part of operands and result, but
PANEL_PART = 8
LEAST_PANEL_BYTES = 1 << 11
#: The same of what is split and packed for the tile unit (it keeps the kernel as well); of small convolutions more, so
#: that the kernel has room.
LEAST_TILE_BYTES, MOST_TILE_BYTES = 1 << 14, 1 << 20
SMALL_TILE_PART, SMALL_TILE_BYTES = 4, 1 << 17
#: The tile unit may multiply that many times what there is to multiply, and is still faster than panels (measured): of
#: few features, which BLAS multiplies slowly; of few channels and large windows, which it does not.
MOST_MULTIPLIED, MOST_MULTIPLIED_GRADIENT = 16, 4
#: Groups that lie side by side are computed so if they fill a part of a vector.
LEAST_GROUPS = 4
#: Products deeper than this (or, with the panel's rows inside, higher) are cut.
MOST_INSIDE = 1024


def _split(view: StridedView, dimension: int, groups: int) -> StridedView:
    """``dimension`` as (groups, the rest), the groups moved to the front."""
    size, stride = view.dims[dimension] // groups, view.strides[dimension]
    dims, strides = list(view.dims), list(view.strides)
    dims[dimension] = size
    return StridedView(view.element_type, (groups, *dims), (size * stride, *strides), view.offset)


def _views_by_role(
    instruction: HloInstruction, views: Views, out: StridedView
) -> tuple[StridedView, StridedView, StridedView]:
    """x, w and out in the order of ``CanonicalConvolution``, groups split off."""
    attrs = instruction.attrs_as(ConvolutionAttrs)
    x_order, w_order, out_order = _orders(instruction)
    groups = attrs.feature_group_count * attrs.batch_group_count
    last = len(x_order) - 1
    return (
        _split(views[0].transpose(x_order), 0 if attrs.batch_group_count > 1 else last, groups),
        _split(views[1].transpose(w_order), last, groups),
        _split(out.transpose(out_order), last, groups),
    )


def _orders(
    instruction: HloInstruction,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Dimensions of x, w and the result, the features last: the layouts that always do."""
    dims = instruction.attrs_as(ConvolutionAttrs).dimension_numbers
    return (
        (dims.input_batch, *dims.input_spatial, dims.input_feature),
        (*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature),
        (dims.output_batch, *dims.output_spatial, dims.output_feature),
    )


def _canonical(
    instruction: HloInstruction, views: Views, compute: PrimitiveType
) -> CanonicalConvolution:
    """Return the convolution as its products read it: arrays of another type than ``compute`` are converted to dense
    ones."""
    orders = _orders(instruction)
    shape = instruction.array_shape
    seen = [
        view if view.element_type is compute else _dense(compute, view.dims, order)
        for view, order in zip(views, orders, strict=False)
    ]
    out = StridedView.dense(ArrayShape(compute, shape.dims))
    x, w, out = _views_by_role(instruction, tuple(seen), out)
    window = instruction.attrs_as(ConvolutionAttrs).window
    backwards = tuple(i for i in range(window.rank) if w.strides[1 + i] < 0)
    dims = [
        replace(dim, reversal=dim.reversal is not (i in backwards))
        for i, dim in enumerate(window.dims)
    ]
    return CanonicalConvolution(
        Window(tuple(dims)), x, w.reverse(tuple(1 + i for i in backwards)), out
    )


def _dense(kind: PrimitiveType, dims: tuple[int, ...], order: tuple[int, ...]) -> StridedView:
    return StridedView.dense_in_order(ArrayShape(kind, dims), order)


def _compute_type(instruction: HloInstruction) -> PrimitiveType | None:
    """The type that the products are summed in; None where this is nothing for BLAS."""
    attrs = instruction.attrs_as(ConvolutionAttrs)
    shapes = [instruction.array_shape, *(operand.array_shape for operand in instruction.operands)]
    kinds = [shape.element_type for shape in shapes]
    if (
        any(math.prod(shape.dims) == 0 for shape in shapes)
        or any(kind.is_complex for kind in kinds)
        or attrs.window.rank > SPATIAL
        or min(attrs.feature_group_count, attrs.batch_group_count) > 1
    ):
        return None
    features = shapes[2].dims[attrs.dimension_numbers.kernel_input_feature]
    depth = math.prod(dim.size for dim in attrs.window.dims) * features
    compute = compute_type(kinds[1], kinds[2], kinds[0], depth)
    return None if compute is None or gemm_function(compute) is None else compute


def _kernel(
    instruction: HloInstruction, views: Views, compute: PrimitiveType
) -> Whole | PhaseConvolutionKernel | None:
    """None where an operand must be laid out anew."""
    canonical = _canonical(instruction, views, compute)
    whole = _without_phases(canonical)
    if whole is None:
        return None
    if not is_thin(canonical, whole) and not has_holes(canonical.window):
        return whole
    return in_phases(canonical, whole, _without_phases) or whole


def _without_phases(canonical: CanonicalConvolution, *, tiled: bool = True) -> Whole | None:
    """None where an operand must be laid out anew. tiled: on the tile unit, if it can be."""
    x, w, out = canonical.x, canonical.w, canonical.out
    compute = x.element_type
    item = compute.byte_size
    side_by_side = all(view.strides[0] == item for view in (x, w, out))
    if out.dims[0] >= LEAST_GROUPS and side_by_side and canonical.window.rank <= 2:
        return GroupConvolutionKernel(compute, canonical.window)
    rows, depth = canonical.rows(), canonical.depth()
    if depth is None:
        return None
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
    small = max(min(total // SMALL_TILE_PART, SMALL_TILE_BYTES), LEAST_TILE_BYTES)
    budget = min(max(total // PANEL_PART, small), MOST_TILE_BYTES)
    return PanelConvolutionKernel(
        compute,
        canonical.window,
        rows,
        depth,
        inside,
        inner[-1],
        runs,
        min(math.prod(outer), max(panel // (runs * inner[-1]), 1)),
        _tiles(canonical, budget, (MOST_MULTIPLIED, MOST_MULTIPLIED_GRADIENT)) if tiled else None,
        vector_plan(canonical.window, x, w, out, channels_inside=inside),
    )


@lru_cache(64)
def _tiles(
    canonical: CanonicalConvolution, budget: int, most_multiplied: tuple[float, float]
) -> ImageTiles | GradientTiles | None:
    """For the tile unit, where features or images lie side by side, and what it multiplies is not mostly padding."""
    x, w, out = canonical.x, canonical.w, canonical.out
    if x.element_type is not PrimitiveType.F32 or min(*x.strides, *w.strides, *out.strides) < 0:
        return None
    batch, inputs, features = out.dims[1], x.dims[-1], out.dims[-1]
    item = x.element_type.byte_size
    plans: list[tuple[float, ImageTiles | GradientTiles] | None] = []
    image = geometry(canonical.window, x.dims, out.dims)
    if image is not None and (inputs == 1 or x.strides[-1] == item):
        plans.append(image_tiles(image, batch, features, budget, most_multiplied[0]))
    gradient = gradient_geometry(canonical.window, x.dims, out.dims)
    beside = (batch == 1 or x.strides[1] == item) and (features == 1 or w.strides[-1] == item)
    if gradient is not None and beside:
        sizes = batch, inputs, features
        plans.append(gradient_tiles(gradient, *sizes, budget, most_multiplied[1]))
    found = [plan for plan in plans if plan is not None]
    return min(found, key=lambda plan: plan[0])[1] if found else None


def layouts(instruction: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Features fastest in x, and output features in w, where nothing else will do."""
    compute = _compute_type(instruction)
    if compute is None or _kernel(instruction, views, compute) is not None:
        return {}
    orders = {
        leaf: order
        for leaf, (view, order) in enumerate(zip(views, _orders(instruction), strict=False))
        if view.element_type is compute
    }
    for leaf, order in orders.items():
        laid_out = list(views)
        laid_out[leaf] = _dense(compute, views[leaf].dims, order)
        if _kernel(instruction, tuple(laid_out), compute) is not None:
            return {leaf: order}
    return orders


def scratch(instruction: HloInstruction, views: Views) -> tuple[ArrayShape, ...]:
    """The panel; x, w and the result in the type of the products, where they have another."""
    compute = _compute_type(instruction)
    if compute is None:
        return ()
    kernel = _kernel(instruction, views, compute)
    assert kernel is not None
    shapes = [*(operand.array_shape for operand in instruction.operands), instruction.array_shape]
    panel = _scratch_elements(kernel)
    return (
        *((ArrayShape(compute, (panel,)),) if panel else ()),
        *(ArrayShape(compute, s.dims) for s in shapes if s.element_type is not compute),
    )


def _scratch_elements(kernel: Whole | PhaseConvolutionKernel) -> int:
    """Return the scratch elements, of the type of the products."""
    return 0 if isinstance(kernel, GroupConvolutionKernel) else kernel.panel_elements


def emit_convolution(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    compute = _compute_type(instruction)
    if compute is None:
        return emit_reference(instruction, arrays, device)
    views = tuple(array.view for array in arrays.operands)
    kernel = _kernel(instruction, views, compute)
    assert kernel is not None
    canonical = _canonical(instruction, views, compute)
    seen = (canonical.x, canonical.w, canonical.out)
    given = _views_by_role(instruction, views, arrays.results[0].view)
    panel = arrays.scratch[: _scratch_elements(kernel) > 0]
    spare = list(arrays.scratch[len(panel) :])
    places, converted = [], []
    for array, own, other in zip((*arrays.operands, *arrays.results), seen, given, strict=True):
        is_converted = array.view.element_type is not compute
        places.append(ArrayView(array.slice, other if is_converted else own))
        if is_converted:
            converted.append(ArrayView(spare.pop(0).slice, own))
    return KernelThunk(
        instruction.name, kernel, tuple(places[:2]), (places[2],), (*panel, *converted)
    )


LOWERINGS.add(Opcode.CONVOLUTION, Lowering(emit_convolution, layouts=layouts, scratch=scratch))
