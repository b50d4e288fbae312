"""Copies on a GPU as loops without computation, including blocks whose position is known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.gpu.codegen.array_access import GpuArrayAccess, array_access
from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.horizontal import merged
from runtime.gpu.codegen.launch import ArgumentKind, GpuTarget, KernelArgument, KernelSource
from runtime.gpu.codegen.loop import loop_source, pieces_sources
from runtime.gpu.codegen.loop_nest import Nest, nest_of
from runtime.program.program_builder import index_stage
from runtime.program.records.copy import (
    ConcatenateKernel,
    CopyKernel,
    DynamicSliceKernel,
    DynamicUpdateSliceKernel,
    PadKernel,
)
from runtime.program.records.loop import StartsStage, UpdateKernel
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import Shift, StridedView
from spmd.shape import PrimitiveType

#: Size of an element in bytes -> type as which it is copied.
_BITS = {
    1: PrimitiveType.U8,
    2: PrimitiveType.U16,
    4: PrimitiveType.U32,
    8: PrimitiveType.U64,
    16: PrimitiveType.C128,
}


def copy_source(
    source: GpuArrayAccess,
    target: GpuArrayAccess,
    dims: Sequence[int],
    target_gpu: GpuTarget,
    stages: Sequence[StartsStage] = (),
    operands: Sequence[StridedView] = (),
) -> tuple[KernelSource, ...]:
    """Return the launch that copies ``source`` to ``target`` at all indices of ``dims``; no launch if there are none.

    stages: computations of run-time starts, which the shifts of the accesses name. operands: layouts of the kernel's
    operands, which the stages read.
    """
    if 0 in dims:
        return ()
    kind = _BITS[source.item]
    accesses = [replace(access, kind=kind) for access in (source, target)]
    nest = nest_of(ScalarProgram((kind,), (), (0,)), dims, accesses, operands, stages)
    return (loop_source(_widest(nest), target_gpu),)


def _widest(nest: Nest) -> Nest:
    """Return ``nest`` with contiguous elements merged into the widest elements that one instruction moves."""
    for width in sorted(_BITS, reverse=True):
        wider = _of_width(nest, width)
        if wider is not None:
            return wider
    return nest


def _of_width(nest: Nest, width: int) -> Nest | None:
    item, inner = nest.accesses[0].item, nest.sizes[-1]
    if width <= item or inner * item % width:
        return None
    for access, own in zip(nest.accesses, nest.strides, strict=True):
        *outer, last = own
        offsets = [access.start, *outer, *(shift.stride for shift in access.shifts)]
        if last != item or any(offset % width for offset in offsets):
            return None
    kind = _BITS[width]
    return replace(
        nest,
        program=ScalarProgram((kind,), (), (0,)),
        sizes=(*nest.sizes[:-1], inner * item // width),
        accesses=tuple(replace(access, kind=kind) for access in nest.accesses),
        strides=tuple((*own[:-1], width) for own in nest.strides),
    )


def block(view: StridedView, slices: Sequence[slice]) -> StridedView:
    """Return the view of a part of an array. Dimensions without a slice are complete."""
    found = [s.indices(n) for s, n in zip(slices, view.dims, strict=False)]
    found += [(0, n, 1) for n in view.dims[len(found) :]]
    starts, limits, steps = (tuple(each[n] for each in found) for n in range(3))
    return view.slice(starts, limits, steps)


def _operand(number: int, view: StridedView) -> GpuArrayAccess:
    return array_access(ArgumentKind.OPERAND, number, view)


def _result(view: StridedView) -> GpuArrayAccess:
    return array_access(ArgumentKind.RESULT, 0, view)


@kernel_emitter(CopyKernel)
def emit_copy(_: CopyKernel, arrays: GpuArrays) -> Sources:
    """Return the launch of a copy."""
    (source,), (target,) = arrays.operands, arrays.results
    return copy_source(_operand(0, source), _result(target), target.dims, arrays.target)


def unless_same(
    found: Sequence[KernelSource], operand: int, result: int, arrays: GpuArrays
) -> tuple[KernelSource, ...]:
    """Return the copies ``found`` marked to be skipped if result ``result`` is the memory of operand ``operand``.

    The mark compares aligned pointers. If the two views have different offsets from them, the copies are not marked;
    they are correct even if they copy elements onto themselves.
    """
    if arrays.operands[operand].offset != arrays.results[result].offset:
        return tuple(found)
    both = (
        KernelArgument(ArgumentKind.OPERAND, operand),
        KernelArgument(ArgumentKind.RESULT, result),
    )
    return tuple(replace(source, unless_same=both) for source in found)


@kernel_emitter(UpdateKernel)
def emit_update(kernel: UpdateKernel, arrays: GpuArrays) -> Sources:
    """Return copies of operands to the results that they update, which are skipped if in place, and the loops.

    Returns None if an operand cannot be viewed by strides with the sizes of its result.
    """
    copies: list[KernelSource] = []
    for result, operand in kernel.updates:
        target = arrays.results[result]
        source = arrays.operands[operand].reshape(target.dims)
        if source is None:
            return None
        copied = copy_source(
            _operand(operand, source),
            array_access(ArgumentKind.RESULT, result, target),
            target.dims,
            arrays.target,
        )
        copies += unless_same(copied, operand, result, arrays)
    return (*copies, *pieces_sources(kernel.pieces, arrays))


# ---- blocks
def _start_stage(arrays: GpuArrays, first: int) -> StartsStage:
    """Return the stage of the starts ``arrays.operands[first:]``."""
    return index_stage(tuple([view.element_type for view in arrays.operands[first:]]), first)


def _shifts(source_view: StridedView, sizes: Sequence[int]) -> tuple[Shift, ...]:
    """Return the shifts of a block of ``sizes`` in an array, whose start along dimension d is run-time start d."""
    return tuple(
        Shift(d, limit - size, stride)
        for d, (limit, size, stride) in enumerate(
            zip(source_view.dims, sizes, source_view.strides, strict=True)
        )
        if limit != size
    )


@kernel_emitter(DynamicSliceKernel)
def emit_dynamic_slice(kernel: DynamicSliceKernel, arrays: GpuArrays) -> Sources:
    """Return the launch that copies the slice. Its threads load the start indices."""
    source_view, (target,) = arrays.operands[0], arrays.results
    source = replace(_operand(0, source_view), shifts=_shifts(source_view, kernel.sizes))
    stages = (_start_stage(arrays, 1),)
    accesses = source, _result(target)
    return copy_source(*accesses, kernel.sizes, arrays.target, stages, arrays.operands)


@kernel_emitter(DynamicUpdateSliceKernel)
def emit_dynamic_update_slice(_: DynamicUpdateSliceKernel, arrays: GpuArrays) -> Sources:
    """Return a copy of the operand, which is skipped if in place, and the launch that writes the slice."""
    source_view, update, *_starts = arrays.operands
    (target,) = arrays.results
    copy = copy_source(_operand(0, source_view), _result(target), target.dims, arrays.target)
    moved = replace(_result(target), shifts=_shifts(target, update.dims))
    stages = (_start_stage(arrays, 2),)
    source = _operand(1, update)
    write = copy_source(source, moved, update.dims, arrays.target, stages, arrays.operands)
    return (*unless_same(copy, 0, 0, arrays), *write)


@kernel_emitter(ConcatenateKernel)
def emit_concatenate(kernel: ConcatenateKernel, arrays: GpuArrays) -> Sources:
    """Return the launch that copies all operands."""
    (target,) = arrays.results
    found: list[KernelSource] = []
    start = 0
    for number, operand in enumerate(arrays.operands):
        end = start + operand.dims[kernel.dimension]
        part = block(target, [slice(None)] * kernel.dimension + [slice(start, end)])
        found += copy_source(_operand(number, operand), _result(part), part.dims, arrays.target)
        start = end
    return merged(found)


@kernel_emitter(PadKernel)
def emit_pad(kernel: PadKernel, arrays: GpuArrays) -> Sources:
    """Return the launch that writes the padding value around a copy of the operand.

    With interior padding, a first launch writes the value to the entire result.
    """
    source, value = arrays.operands
    (target,) = arrays.results
    around = [target]
    is_interior = any(inner.step not in (None, 1) for inner in kernel.target)
    if not is_interior:
        around = [
            block(target, (*kernel.target[:dimension], outside))
            for dimension, inner in enumerate(kernel.target)
            for outside in (slice(inner.start), slice(inner.stop, None))
        ]
    found: list[KernelSource] = []
    for part in around:
        filled = _operand(1, value.broadcast(part.dims, ()))
        found += copy_source(filled, _result(part), part.dims, arrays.target)
    own, inner_part = block(source, kernel.source), block(target, kernel.target)
    found += copy_source(_operand(0, own), _result(inner_part), inner_part.dims, arrays.target)
    return tuple(found) if is_interior else merged(found)
