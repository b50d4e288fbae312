"""gather and scatter."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import GatherAttrs, ScatterAttrs
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import GatherDimensionNumbersProto, ScatterDimensionNumbersProto


def _read_gather(values: ProtoValues) -> GatherAttrs:
    numbers = values.proto.gather_dimension_numbers
    if numbers is None:
        raise HloParseError("gather_dimension_numbers is missing")
    return GatherAttrs(
        offset_dims=numbers.offset_dims,
        collapsed_slice_dims=numbers.collapsed_slice_dims,
        start_index_map=numbers.start_index_map,
        index_vector_dim=numbers.index_vector_dim,
        slice_sizes=values.proto.gather_slice_sizes,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.start_indices_batching_dims,
        indices_are_sorted=values.proto.indices_are_sorted,
    )


def _write_gather(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(GatherAttrs)
    numbers = GatherDimensionNumbersProto()
    numbers.offset_dims = attrs.offset_dims
    numbers.collapsed_slice_dims = attrs.collapsed_slice_dims
    numbers.start_index_map = attrs.start_index_map
    numbers.index_vector_dim = attrs.index_vector_dim
    numbers.operand_batching_dims = attrs.operand_batching_dims
    numbers.start_indices_batching_dims = attrs.start_indices_batching_dims
    proto.gather_dimension_numbers = numbers
    proto.gather_slice_sizes = attrs.slice_sizes
    proto.indices_are_sorted = attrs.indices_are_sorted


def _read_scatter(values: ProtoValues) -> ScatterAttrs:
    numbers = values.proto.scatter_dimension_numbers
    if numbers is None:
        raise HloParseError("scatter_dimension_numbers is missing")
    return ScatterAttrs(
        update_window_dims=numbers.update_window_dims,
        inserted_window_dims=numbers.inserted_window_dims,
        scatter_dims_to_operand_dims=numbers.scatter_dims_to_operand_dims,
        index_vector_dim=numbers.index_vector_dim,
        input_batching_dims=numbers.input_batching_dims,
        scatter_indices_batching_dims=numbers.scatter_indices_batching_dims,
        indices_are_sorted=values.proto.indices_are_sorted,
        unique_indices=values.proto.unique_indices,
    )


def _write_scatter(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ScatterAttrs)
    numbers = ScatterDimensionNumbersProto()
    numbers.update_window_dims = attrs.update_window_dims
    numbers.inserted_window_dims = attrs.inserted_window_dims
    numbers.scatter_dims_to_operand_dims = attrs.scatter_dims_to_operand_dims
    numbers.index_vector_dim = attrs.index_vector_dim
    numbers.input_batching_dims = attrs.input_batching_dims
    numbers.scatter_indices_batching_dims = attrs.scatter_indices_batching_dims
    proto.scatter_dimension_numbers = numbers
    proto.indices_are_sorted = attrs.indices_are_sorted
    proto.unique_indices = attrs.unique_indices


attrs_proto(Opcode.GATHER, read=_read_gather, write=_write_gather)
attrs_proto(Opcode.SCATTER, read=_read_scatter, write=_write_scatter, callees=1)
