"""Lowering of gather and scatter to kernels, or to the reference evaluator if a combiner has no native code."""

from __future__ import annotations

from collectives.communicator.group import can_reduce
from runtime.emit.reference import emit_with
from runtime.emit.scalar_program import scalar_program
from runtime.lowering import LOWERINGS, Lowering, Views
from runtime.program.records.gather_scatter import GatherKernel, IndexedWindows, ScatterKernel
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import GatherAttrs, ScatterAttrs
from spmd.ops.reduction import reduction_kind, through_annotations
from spmd.shape import ArrayShape, PrimitiveType


def _windows_of(
    instruction: HloInstruction,
    *,
    windows: tuple[int, ...],
    sizes: dict[int, int],
    window: tuple[int, ...],
    skipped: tuple[int, ...],
    starts: tuple[int, ...],
    batching: dict[int, int],
    vector: int,
) -> IndexedWindows:
    """Return the correspondence between the dimensions of the array, the index array and the array of windows.

    The array is operand 0, the index array operand 1. windows: sizes of the array of windows. sizes: dimension of the
    array -> size of a window along it; 1 if it is missing. window: dimensions of the array of windows along a window,
    in the order of the dimensions of the array that are not ``skipped``. starts: dimension of the array for each
    component of an index vector. batching: dimension of the index array -> batching dimension of the array. vector:
    HLO's index_vector_dim.
    """
    array, indices = instruction.operand(0).dims, instruction.operand(1).dims
    vectors = [d for d in range(len(indices)) if d != vector]
    batch = [d for d in range(len(windows)) if d not in window]
    return IndexedWindows(
        tuple((n, i, batching.get(i)) for n, i in zip(batch, vectors, strict=True)),
        tuple(zip(window, (d for d in range(len(array)) if d not in skipped), strict=True)),
        tuple((d, array[d] - sizes.get(d, 1)) for d in starts),
        vector if vector < len(indices) else None,
    )


def gather_windows(instruction: HloInstruction) -> IndexedWindows:
    """Return the windows of a gather."""
    attrs = instruction.attrs_as(GatherAttrs)
    return _windows_of(
        instruction,
        windows=instruction.dims,
        sizes=dict(enumerate(attrs.slice_sizes)),
        window=attrs.offset_dims,
        skipped=(*attrs.collapsed_slice_dims, *attrs.operand_batching_dims),
        starts=attrs.start_index_map,
        batching=dict(
            zip(attrs.start_indices_batching_dims, attrs.operand_batching_dims, strict=True)
        ),
        vector=attrs.index_vector_dim,
    )


def scatter_windows(instruction: HloInstruction) -> IndexedWindows:
    """Return the windows of a scatter with one input."""
    attrs = instruction.attrs_as(ScatterAttrs)
    rank = len(instruction.operand(0).dims)
    skipped = (*attrs.inserted_window_dims, *attrs.input_batching_dims)
    updates = instruction.operand(2).dims
    windowed = [d for d in range(rank) if d not in skipped]
    return _windows_of(
        instruction,
        windows=updates,
        sizes={d: updates[u] for d, u in zip(windowed, attrs.update_window_dims, strict=True)},
        window=attrs.update_window_dims,
        skipped=skipped,
        starts=attrs.scatter_dims_to_operand_dims,
        batching=dict(
            zip(attrs.scatter_indices_batching_dims, attrs.input_batching_dims, strict=True)
        ),
        vector=attrs.index_vector_dim,
    )


def _is_index(kind: PrimitiveType) -> bool:
    """Return whether native code reads indices of type ``kind``."""
    return kind.is_integer and kind.bits >= 8


def gather_kernel(instruction: HloInstruction) -> GatherKernel | None:
    """Return the kernel of a gather, or None for indices of less than 8 bits, for which the reference evaluator
    computes it.
    """
    if not _is_index(instruction.operand(1).array_shape.element_type):
        return None
    return GatherKernel(gather_windows(instruction))


def scatter_kernel(instruction: HloInstruction) -> ScatterKernel | None:
    """Return the kernel of a scatter, or None if the reference evaluator must compute it.

    The evaluator computes scatters with several inputs, with indices of less than 8 bits, or with a combiner that is no
    scalar program of known operations.
    """
    if instruction.num_operands != 3:
        return None
    kind = instruction.operand(0).array_shape.element_type
    windows = scatter_windows(instruction)
    indices = instruction.operand(1).array_shape.element_type
    if not _is_index(indices):
        return None
    combiner = instruction.to_apply
    if through_annotations(combiner.root) is combiner.parameters[1]:
        return ScatterKernel(windows, None, kind)
    reduction = reduction_kind(combiner)
    if reduction is not None and can_reduce(kind.numpy, reduction):
        return ScatterKernel(windows, reduction, kind.accumulator)
    program = scalar_program(combiner)
    if program is None or program.parameters != (kind, kind):
        return None
    return ScatterKernel(windows, program, kind)


def scratch(instruction: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    """Return the shape of the array in the accumulator type of a scatter, if that is wider than the elements."""
    kernel = scatter_kernel(instruction)
    shape = instruction.operand(0).array_shape
    if kernel is None or kernel.accumulate is shape.element_type:
        return ()
    return (ArrayShape(kernel.accumulate, shape.dims),)


def inputs_in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    """Return pairs (i, i): result i of a scatter may be the memory of input i.

    The reference evaluator allows that as well, since its result is copied to the memory at the end.
    """
    return tuple((i, i) for i in range(instruction.num_operands // 2))


LOWERINGS.add(Opcode.GATHER, Lowering(emit_with(gather_kernel)))
LOWERINGS.add(Opcode.SCATTER, Lowering(emit_with(scatter_kernel), inputs_in_place, scratch=scratch))
