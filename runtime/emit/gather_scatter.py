"""Lowering of gather and scatter, alone or with the computation of their indices, to kernels.

The reference evaluator computes what has no native code: other combiners, or indices of less than 8 bits.
"""

from __future__ import annotations

from collectives.communicator.group import can_reduce
from runtime.buffers.types import ArrayView
from runtime.emit.fused_kernel import loop_leaf
from runtime.emit.reference import emit_kernel, emit_reference
from runtime.emit.scalar_program import scalar_program
from runtime.fusion.indexed.index_fusion import IndexFusion, index_fusion
from runtime.fusion.refusal import NoEmitterError
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays, Views
from runtime.program.kernel import Kernel
from runtime.program.records.gather_scatter import GatherKernel, IndexedWindows, ScatterKernel
from runtime.program.records.loop import OperandElements
from runtime.program.scalar_program import Reducer
from runtime.program.thunks import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import GatherAttrs, ScatterAttrs
from spmd.ops.reduction import reduction_kind, through_annotations
from spmd.shape import ArrayShape, PrimitiveType


def _windows_of(
    instruction: HloInstruction,
    plan: IndexFusion,
    operands: tuple[ArrayView, ...],
    *,
    windows: tuple[int, ...],
    sizes: dict[int, int],
    window: tuple[int, ...],
    skipped: tuple[int, ...],
    starts: tuple[int, ...],
    batching: dict[int, int],
    vector: int,
) -> IndexedWindows:
    """Return the windows of ``instruction``, whose operand 0 is the indexed array.

    windows: sizes of the array of windows. sizes: dimension of the array -> size of a window
    along it; 1 if it is missing. window: dimensions of the array of windows along a window, in the order of the
    dimensions of the array that are not ``skipped``. starts: dimension of the array for each component of an index
    vector. batching: dimension of HLO's index array -> batching dimension of the array. vector: HLO's index_vector_dim.
    """
    array, rank = instruction.operand(0).dims, len(instruction.operand(1).dims)
    vectors = [d for d in range(rank) if d != vector]
    batch = [d for d in range(len(windows)) if d not in window]
    leaves = (loop_leaf(leaf, operands) for leaf in plan.graph.leaves)
    return IndexedWindows(
        plan.array,
        tuple(leaf for leaf in leaves if isinstance(leaf, OperandElements)),
        plan.graph.program,
        tuple((n, batching.get(i)) for n, i in zip(batch, vectors, strict=True)),
        tuple(zip(window, (d for d in range(len(array)) if d not in skipped), strict=True)),
        tuple((d, array[d] - sizes.get(d, 1)) for d in starts),
    )


def gather_windows(
    instruction: HloInstruction, plan: IndexFusion, operands: tuple[ArrayView, ...]
) -> IndexedWindows:
    """Return the windows of a gather that is planned as ``plan``. operands: those of the kernel."""
    attrs = instruction.attrs_as(GatherAttrs)
    return _windows_of(
        instruction,
        plan,
        operands,
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


def scatter_windows(
    instruction: HloInstruction, plan: IndexFusion, operands: tuple[ArrayView, ...]
) -> IndexedWindows:
    """Return the windows of a scatter with one input that is planned as ``plan``. operands: those of the kernel."""
    attrs = instruction.attrs_as(ScatterAttrs)
    rank = len(instruction.operand(0).dims)
    skipped = (*attrs.inserted_window_dims, *attrs.input_batching_dims)
    updates = instruction.operand(2).dims
    windowed = [d for d in range(rank) if d not in skipped]
    return _windows_of(
        instruction,
        plan,
        operands,
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


@dataclass(frozen=True, slots=True)
class _Combiner:
    """Combiner of a scatter, as ScatterKernel has it: None replaces elements. ``accumulate`` is the type of totals."""

    reduction: Reducer | None
    accumulate: PrimitiveType


def _combiner(scatter: HloInstruction) -> _Combiner | None:
    """Return the combiner, or None if it is no scalar program of known operations, or combines several arrays."""
    if scatter.num_operands != 3:
        return None
    kind = scatter.operand(0).array_shape.element_type
    combiner = scatter.to_apply
    if through_annotations(combiner.root) is combiner.parameters[1]:
        return _Combiner(None, kind)
    reduction = reduction_kind(combiner)
    if reduction is not None and can_reduce(kind.numpy, reduction):
        return _Combiner(reduction, kind.accumulator)
    program = scalar_program(combiner)
    if program is None or program.parameters != (kind, kind):
        return None
    return _Combiner(program, kind)


def emit_indexed(
    instruction: HloInstruction,
    root: HloInstruction,
    plan: IndexFusion,
    arrays: OpArrays,
    device: Device,
) -> Thunk:
    """Return the thunk of ``instruction``: the gather or scatter ``root``, or a fusion that is it and its indices.

    The reference evaluator computes scatters for whose combiner there is no kernel.
    """
    kernel: Kernel | None = None
    if root.opcode is Opcode.GATHER:
        kernel = GatherKernel(gather_windows(root, plan, arrays.operands))
    elif (combiner := _combiner(root)) is not None:
        assert plan.updates is not None, "scatters have updates"
        windows = scatter_windows(root, plan, arrays.operands)
        kernel = ScatterKernel(windows, plan.updates, combiner.reduction, combiner.accumulate)
    return emit_kernel(kernel, instruction, arrays, device)


def _emit_alone(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of a gather or scatter that is in no fusion."""
    operands = instruction.operands
    try:
        plan = index_fusion(instruction, {x: operands.index(x) for x in operands})
    except NoEmitterError:
        return emit_reference(instruction, arrays, device)
    return emit_indexed(instruction, instruction, plan, arrays, device)


def scratch(root: HloInstruction, _: Views) -> tuple[ArrayShape, ...]:
    """Return the shape of the array in the accumulator type of a scatter, if that is wider than the elements."""
    combiner = _combiner(root)
    shape = root.operand(0).array_shape
    if combiner is None or combiner.accumulate is shape.element_type:
        return ()
    return (ArrayShape(combiner.accumulate, shape.dims),)


def inputs_in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    """Return pairs (i, i): result i of a scatter may be the memory of input i.

    The reference evaluator allows that as well, since its result is copied to the memory at the end.
    """
    return tuple((i, i) for i in range(instruction.num_operands // 2))


LOWERINGS.add(Opcode.GATHER, Lowering(_emit_alone))
LOWERINGS.add(Opcode.SCATTER, Lowering(_emit_alone, inputs_in_place, scratch=scratch))
