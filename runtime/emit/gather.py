"""gather: whole rows through NumPy's take, any other form through the reference evaluator."""

from __future__ import annotations

from runtime.buffers.types import ArrayView
from runtime.emit.reference import emit_reference
from runtime.kernels.gather import TakeKernel
from runtime.lowering import LOWERINGS, Device, Lowering, StepArrays
from runtime.thunks.kernel import KernelThunk
from runtime.thunks.thunk import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import GatherAttrs
from spmd.shape import PrimitiveType

#: Types in which an index above the range of signed 64 bits cannot be written.
_INDEX_TYPES = (PrimitiveType.S32, PrimitiveType.S64, PrimitiveType.U8, PrimitiveType.U32)


def takes_rows(instruction: HloInstruction) -> bool:
    """result[i.., :] = operand[indices[i..], :], the indices having one component (which may be left out)."""
    attrs = instruction.attrs_as(GatherAttrs)
    table, indices = instruction.operand(0).array_shape, instruction.operand(1).array_shape
    batch_rank = len(instruction.dims) - (table.rank - 1)
    return (
        table.rank > 0
        and attrs.start_index_map == attrs.collapsed_slice_dims == (0,)
        and not attrs.operand_batching_dims
        and attrs.slice_sizes == (1, *table.dims[1:])
        and attrs.offset_dims == tuple(range(batch_rank, len(instruction.dims)))
        and attrs.index_vector_dim in (indices.rank, indices.rank - 1)
        and (attrs.index_vector_dim == indices.rank or indices.dims[-1] == 1)
        and indices.element_type in _INDEX_TYPES
        and table.dims[0] > 0
    )


def emit_gather(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    if not takes_rows(instruction):
        return emit_reference(instruction, arrays, device)
    table, indices = arrays.operands
    attrs = instruction.attrs_as(GatherAttrs)
    if attrs.index_vector_dim < len(indices.view.dims):
        flat = indices.view.reshape(indices.view.dims[:-1])
        if flat is None:
            return emit_reference(instruction, arrays, device)
        indices = ArrayView(indices.slice, flat)
    return KernelThunk(instruction.name, TakeKernel(), (table, indices), arrays.results)


LOWERINGS.add(Opcode.GATHER, Lowering(emit_gather))
