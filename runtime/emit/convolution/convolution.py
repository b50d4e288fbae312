"""Lowering of convolution to kernels whose accumulators have a BLAS type, or to the reference evaluator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.convolution.choose import choose_kernel, product_type
from runtime.emit.convolution.phases import in_phases, is_thin
from runtime.emit.reference import emit_reference
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays, Views
from runtime.program.convolution_matrices import CanonicalConvolution
from runtime.program.records.convolution import (
    GroupConvolutionKernel,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
    UndividedConvolution,
)
from runtime.program.records.convolution_call import ConvolutionCallKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk, Thunk
from spmd.analysis.library_convolutions import requires_row_major
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import ConvolutionAttrs
from spmd.ops.product_precision import allows_tf32
from spmd.ops.window import Window
from spmd.shape import ArrayShape, PrimitiveType


def _split(view: StridedView, dimension: int, groups: int) -> StridedView:
    """Return ``view`` with ``dimension`` split into (groups, rest) and the groups as the first dimension."""
    size, stride = view.dims[dimension] // groups, view.strides[dimension]
    dims, strides = list(view.dims), list(view.strides)
    dims[dimension] = size
    return StridedView(view.element_type, (groups, *dims), (size * stride, *strides), view.offset)


def _views_by_role(
    instruction: HloInstruction, views: Views, out: StridedView
) -> tuple[StridedView, StridedView, StridedView]:
    """Return both operands and the result ``out`` in the dimension order of ``CanonicalConvolution``."""
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
    """Return the dimension orders of x, w and the result that have features last, which every kernel supports."""
    dims = instruction.attrs_as(ConvolutionAttrs).dimension_numbers
    return (
        (dims.input_batch, *dims.input_spatial, dims.input_feature),
        (*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature),
        (dims.output_batch, *dims.output_spatial, dims.output_feature),
    )


def _canonical(
    instruction: HloInstruction, views: Views, compute: PrimitiveType
) -> CanonicalConvolution:
    """Return the convolution in canonical dimension order, as its matrix products read it.

    An array whose type is not ``compute`` is replaced by the dense array to which it is converted.
    """
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
    """Return the dense view of sizes ``dims`` in which dimension ``order[0]`` varies slowest."""
    return StridedView.dense_in_order(ArrayShape(kind, dims), order)


def _compute_type(instruction: HloInstruction) -> PrimitiveType | None:
    """Return the type of the accumulators, or None if the reference evaluator must compute the convolution.

    The evaluator computes convolutions with complex types, empty arrays, both feature and batch groups, more than three
    spatial dimensions, or no accumulator type that BLAS supports.
    """
    attrs = instruction.attrs_as(ConvolutionAttrs)
    shapes = [instruction.array_shape, *(operand.array_shape for operand in instruction.operands)]
    kinds = [shape.element_type for shape in shapes]
    if (
        any(math.prod(shape.dims) == 0 for shape in shapes)
        or any(kind.is_complex for kind in kinds)
        or min(attrs.feature_group_count, attrs.batch_group_count) > 1
    ):
        return None
    features = shapes[2].dims[attrs.dimension_numbers.kernel_input_feature]
    depth = math.prod(dim.size for dim in attrs.window.dims) * features
    return product_type((kinds[1], kinds[2], kinds[0]), depth, attrs.window.rank)


def _kernel(
    instruction: HloInstruction, views: Views, compute: PrimitiveType
) -> UndividedConvolution | PhaseConvolutionKernel | None:
    """Return the kernel for operands with layouts ``views``, or None if an operand must be copied first."""
    canonical = _canonical(instruction, views, compute)
    undivided = choose_kernel(canonical)
    if undivided is None:
        return None
    if not is_thin(canonical, undivided) and not canonical.window.has_holes:
        return undivided
    return in_phases(canonical, undivided, choose_kernel) or undivided


def layouts(instruction: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Return the operands that must be copied because no kernel can read them, with the dimension order of each copy.

    Copies have features (of w: output features) as the fastest dimension. If a copy of one operand suffices, only that
    one is returned. Operands for a GPU's library are copied to row-major order.
    """
    compute = _compute_type(instruction)
    if requires_row_major(instruction):
        return {
            n: tuple(range(len(view.dims))) for n, view in enumerate(views) if not view.is_packed
        }
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
    """Return the shapes of the kernel's panel, and of the converted copies of arrays of another type.

    A convolution for a GPU's library has none; a CPU that runs it allocates its own.
    """
    compute = _compute_type(instruction)
    if compute is None or requires_row_major(instruction):
        return ()
    return _scratch(instruction, views, compute)


def _scratch(
    instruction: HloInstruction, views: Views, compute: PrimitiveType
) -> tuple[ArrayShape, ...]:
    kernel = _kernel(instruction, views, compute)
    assert kernel is not None
    shapes = [*(operand.array_shape for operand in instruction.operands), instruction.array_shape]
    panel = _scratch_elements(kernel)
    return (
        *((ArrayShape(compute, (panel,)),) if panel else ()),
        *(ArrayShape(compute, s.dims) for s in shapes if s.element_type is not compute),
    )


def _scratch_elements(kernel: UndividedConvolution | PhaseConvolutionKernel) -> int:
    """Return the size of the kernel's first scratch array in elements of the accumulator type; 0 if it has none."""
    return 0 if isinstance(kernel, GroupConvolutionKernel) else kernel.panel_elements


def emit_convolution(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of a convolution: a kernel, or a call of the reference evaluator."""
    compute = _compute_type(instruction)
    if compute is None:
        return emit_reference(instruction, arrays, device)
    if requires_row_major(instruction):
        kernel, operands, result = convolution_call(instruction, arrays.operands, arrays.results[0])
        return KernelThunk(instruction.name, kernel, operands, (result,))
    return _emitted(instruction, arrays, compute)


def convolution_call(
    instruction: HloInstruction, operands: Sequence[ArrayView], result: ArrayView
) -> tuple[ConvolutionCallKernel, tuple[ArrayView, ArrayView], ArrayView]:
    """Return the kernel of a convolution for a GPU's library, and its arrays in the kernel's dimension order."""
    compute = _compute_type(instruction)
    assert compute is not None, "the library computes it"
    views = tuple(array.view for array in operands)
    given = _views_by_role(instruction, views, result.view)
    read = list(operands)
    if is_copied := _kernel(instruction, views, compute) is None:
        order = _orders(instruction)[1]
        read[1] = ArrayView(operands[1].slice, _dense(compute, views[1].dims, order))
    seen = tuple(array.view for array in read)
    scratch = [
        ArrayView(result.slice, StridedView.dense(shape))
        for shape in _scratch(instruction, seen, compute)
    ]
    alone = _emitted(instruction, OpArrays(tuple(read), (result,), tuple(scratch)), compute)
    assert isinstance(
        alone.kernel, PanelConvolutionKernel | GroupConvolutionKernel | PhaseConvolutionKernel
    )
    kernel = ConvolutionCallKernel(
        alone.kernel,
        alone.operands[1].view if is_copied else None,
        tuple(array.view for array in alone.scratch),
    )
    x, w = alone.operands
    return kernel, (x, ArrayView(w.slice, given[1]) if is_copied else w), alone.results[0]


def _emitted(instruction: HloInstruction, arrays: OpArrays, compute: PrimitiveType) -> KernelThunk:
    """Return the thunk of the convolution's own kernel."""
    views = tuple(array.view for array in arrays.operands)
    kernel = _kernel(instruction, views, compute)
    assert kernel is not None
    canonical = _canonical(instruction, views, compute)
    seen = (canonical.x, canonical.w, canonical.out)
    given = _views_by_role(instruction, views, arrays.results[0].view)
    kinds = [array.view.element_type for array in arrays.operands]
    kernel = replace(
        kernel,
        tf32=compute is PrimitiveType.F32
        and allows_tf32(instruction.attrs_as(ConvolutionAttrs))
        and not any(kind.is_integer and kind.byte_size > 1 for kind in kinds),
    )
    panel = arrays.scratch[: _scratch_elements(kernel) > 0]
    spare = list(arrays.scratch[len(panel) :])
    arrays_of_kernel, converted = [], []
    for array, own, other in zip((*arrays.operands, *arrays.results), seen, given, strict=True):
        is_converted = array.view.element_type is not compute
        arrays_of_kernel.append(ArrayView(array.slice, other if is_converted else own))
        if is_converted:
            converted.append(ArrayView(spare.pop(0).slice, own))
    return KernelThunk(
        instruction.name,
        kernel,
        tuple(arrays_of_kernel[:2]),
        (arrays_of_kernel[2],),
        (*panel, *converted),
    )


LOWERINGS.add(Opcode.CONVOLUTION, Lowering(emit_convolution, layouts=layouts, scratch=scratch))
