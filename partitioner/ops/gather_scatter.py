"""Gather and scatter: batch and window dimensions pass through; in an indexed dimension the owner of the element
answers.

    gather   table [v, d], ids [b, s, (1)]                -> [b, s, d]    v: SUM, zeros for rows of other devices
    scatter  input [v, d], ids [b, s, (1)], upd [b, s, d] -> [v, d]       v passes; b, s: reduced by the combiner

owned_gather explains why the first SUM is correct and why v may pass in the second. If an index picks a window longer
than one element, the dimension is not split; neither is the index vector dimension (1). Batching dimensions
(operand_batching_dims) occur in all tensors and pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from partitioner.ops.owner import owner_sum
from partitioner.ops.reducers import reduction_of
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import localize, sharding_rule
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Attrs, Opcode
from spmd.ops.attrs import GatherAttrs, ScatterAttrs
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import PartitionContext


@sharding_rule(Opcode.GATHER)
def gather_rule(gather: HloInstruction) -> OpShardingRule:
    attrs = gather.attrs_as(GatherAttrs)
    table, ids = gather.operand(0).dims, gather.operand(1).dims
    batching = dict(
        zip(attrs.start_indices_batching_dims, attrs.operand_batching_dims, strict=True)
    )
    rule = RuleBuilder.for_instruction(gather)
    for position, d in zip(gather_batch_positions(gather), index_batch_dims(gather), strict=True):
        operands = {1: d} if d not in batching else {0: batching[d], 1: d}
        rule.factor(ids[d], operands, {0: position})
    for d, position in gather_window_dims(attrs, len(table)):
        if attrs.slice_sizes[d] == table[d]:
            rule.factor(table[d], {0: d}, {0: position})
    for d in owned_gather_dims(gather):
        rule.factor(table[d], {0: d}, reduction=owner_sum(gather.array_shape.element_type))
    return rule.build()


@localize(Opcode.GATHER)
def localize_gather(
    _: PartitionContext,
    gather: HloInstruction,
    operands: list[HloInstruction],
    results: list[ArrayShape],
) -> Attrs:
    """Return local slice sizes: the part that the local result shows; collapsed and batching dimensions keep size 1 (or
    0).
    """
    attrs = gather.attrs_as(GatherAttrs)
    sizes = list(attrs.slice_sizes)
    for d, position in gather_window_dims(attrs, len(sizes)):
        sizes[d] = results[0].dims[position]
    return replace(attrs, slice_sizes=tuple(sizes))


@sharding_rule(Opcode.SCATTER)
def scatter_rule(scatter: HloInstruction) -> OpShardingRule:
    """Return the rule of a scatter. Operands: n inputs, indices, n updates.

    The batch dimensions of indices and updates are a reduction: each device scatters its own updates into an input that
    counts once. A combiner that assigns (or is of unknown kind) depends on order: its dimensions are not split.
    """
    attrs = scatter.attrs_as(ScatterAttrs)
    count = scatter.num_operands // 2
    inputs, updates = range(count), range(count + 1, 2 * count + 1)
    ids, shape = scatter.operand(count).dims, scatter.operand(0).dims
    kind = scatter_kind(scatter)
    batching = dict(
        zip(attrs.scatter_indices_batching_dims, attrs.input_batching_dims, strict=True)
    )
    rule = RuleBuilder.for_instruction(scatter)
    for position, d in zip(
        scatter_batch_positions(scatter), index_batch_dims(scatter), strict=True
    ):
        shared = {count: d, **dict.fromkeys(updates, position)}
        if d in batching:
            shared.update(dict.fromkeys(inputs, batching[d]))
            rule.factor(ids[d], shared, dict.fromkeys(inputs, batching[d]))
        elif kind is not None:
            rule.factor(ids[d], shared, reduction=kind)
    for d, position in scatter_window_dims(attrs, len(shape)):
        if scatter.operand(count + 1).dims[position] == shape[d]:
            shared = {**dict.fromkeys(inputs, d), **dict.fromkeys(updates, position)}
            rule.factor(shape[d], shared, dict.fromkeys(inputs, d))
    for d in owned_scatter_dims(scatter):
        rule.factor(shape[d], dict.fromkeys(inputs, d), dict.fromkeys(inputs, d))
    if kind is not None:
        rule.counts_once(*inputs)
    return rule.build()


def scatter_kind(scatter: HloInstruction) -> ReductionKind | None:
    """Return the reduction by which updates combine; None if their order matters."""
    return reduction_of(scatter.to_apply)


def owned_gather_dims(gather: HloInstruction) -> list[int]:
    """Return the table dimensions in which an index picks one of several elements."""
    attrs = gather.attrs_as(GatherAttrs)
    table = gather.operand(0).dims
    return [d for d in attrs.start_index_map if attrs.slice_sizes[d] == 1 and table[d] > 1]


def owned_scatter_dims(scatter: HloInstruction) -> list[int]:
    """Return the input dimensions in which an index picks one element (those that updates have no dimension for)."""
    attrs = scatter.attrs_as(ScatterAttrs)
    indexed = attrs.scatter_dims_to_operand_dims
    return [d for d in attrs.inserted_window_dims if d in indexed]


def index_batch_dims(instruction: HloInstruction) -> list[int]:
    """Return the dimensions of a gather's or scatter's indices except the index vector's."""
    if isinstance(instruction.attrs, GatherAttrs):
        ids, vector = instruction.operand(1), instruction.attrs.index_vector_dim
    else:
        attrs = instruction.attrs_as(ScatterAttrs)
        ids, vector = instruction.operand(instruction.num_operands // 2), attrs.index_vector_dim
    return [d for d in range(ids.array_shape.rank) if d != vector]


def gather_batch_positions(gather: HloInstruction) -> list[int]:
    """Return the result dimensions that come from the indices, in their order."""
    offset = gather.attrs_as(GatherAttrs).offset_dims
    return [p for p in range(gather.array_shape.rank) if p not in offset]


def gather_window_dims(attrs: GatherAttrs, rank: int) -> list[tuple[int, int]]:
    """Return (operand dimension, result dimension) of each sliced dimension that the result keeps."""
    dropped = (*attrs.collapsed_slice_dims, *attrs.operand_batching_dims)
    window_dims = [d for d in range(rank) if d not in dropped]
    return list(zip(window_dims, attrs.offset_dims, strict=True))


def scatter_batch_positions(scatter: HloInstruction) -> list[int]:
    """Return the update dimensions that come from the indices, in their order."""
    window = scatter.attrs_as(ScatterAttrs).update_window_dims
    rank = scatter.operand(scatter.num_operands // 2 + 1).array_shape.rank
    return [p for p in range(rank) if p not in window]


def scatter_window_dims(attrs: ScatterAttrs, rank: int) -> list[tuple[int, int]]:
    """Return (input dimension, update dimension) of each window dimension that updates keep."""
    dropped = (*attrs.inserted_window_dims, *attrs.input_batching_dims)
    window_dims = [d for d in range(rank) if d not in dropped]
    return list(zip(window_dims, attrs.update_window_dims, strict=True))
