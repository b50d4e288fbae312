"""gather and scatter."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import GatherAttrs, ScatterAttrs
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter


def _read_gather(values: AttrValues) -> GatherAttrs:
    return GatherAttrs(
        offset_dims=values.need_ints("offset_dims"),
        collapsed_slice_dims=values.need_ints("collapsed_slice_dims"),
        start_index_map=values.need_ints("start_index_map"),
        index_vector_dim=values.need_integer("index_vector_dim"),
        slice_sizes=values.need_ints("slice_sizes"),
        operand_batching_dims=values.ints("operand_batching_dims"),
        start_indices_batching_dims=values.ints("start_indices_batching_dims"),
        indices_are_sorted=values.flag("indices_are_sorted"),
    )


def _write_gather(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(GatherAttrs)
    out.ints("offset_dims", attrs.offset_dims)
    out.ints("collapsed_slice_dims", attrs.collapsed_slice_dims)
    out.ints("start_index_map", attrs.start_index_map)
    out.optional_ints("operand_batching_dims", attrs.operand_batching_dims)
    out.optional_ints("start_indices_batching_dims", attrs.start_indices_batching_dims)
    out.add("index_vector_dim", attrs.index_vector_dim)
    out.ints("slice_sizes", attrs.slice_sizes)
    out.flag("indices_are_sorted", attrs.indices_are_sorted)


def _read_scatter(values: AttrValues) -> ScatterAttrs:
    values.callee("to_apply")
    return ScatterAttrs(
        update_window_dims=values.need_ints("update_window_dims"),
        inserted_window_dims=values.need_ints("inserted_window_dims"),
        scatter_dims_to_operand_dims=values.need_ints("scatter_dims_to_operand_dims"),
        index_vector_dim=values.need_integer("index_vector_dim"),
        input_batching_dims=values.ints("input_batching_dims"),
        scatter_indices_batching_dims=values.ints("scatter_indices_batching_dims"),
        indices_are_sorted=values.flag("indices_are_sorted"),
        unique_indices=values.flag("unique_indices"),
    )


def _write_scatter(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ScatterAttrs)
    out.ints("update_window_dims", attrs.update_window_dims)
    out.ints("inserted_window_dims", attrs.inserted_window_dims)
    out.ints("scatter_dims_to_operand_dims", attrs.scatter_dims_to_operand_dims)
    out.optional_ints("input_batching_dims", attrs.input_batching_dims)
    out.optional_ints("scatter_indices_batching_dims", attrs.scatter_indices_batching_dims)
    out.add("index_vector_dim", attrs.index_vector_dim)
    out.flag("indices_are_sorted", attrs.indices_are_sorted)
    out.flag("unique_indices", attrs.unique_indices)
    out.callee("to_apply", instruction.to_apply)


attrs_text(Opcode.GATHER, read=_read_gather, write=_write_gather)
attrs_text(Opcode.SCATTER, read=_read_scatter, write=_write_scatter)
