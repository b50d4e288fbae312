"""Gather and scatter on a dimension that is sharded along its indexed side: the owner of the element answers.

    gather   table [v, d] split along v, ids [b]: each device looks up the ids in its range and puts zeros for the
             others; the result is partial (SUM) along v's axes
    scatter  input [v, d] split along v: each device applies the updates that fall into its range (an index outside
             the local input is dropped, as the operation says); the result is split as the input is

This applies only to dimensions in which an index picks one element: a longer window could span tiles.
"""

from __future__ import annotations

from partitioner.ops.gather_scatter import (
    gather_batch_positions,
    owned_gather_dims,
    owned_scatter_dims,
)
from partitioner.ops.owner import as_position, clamped, from_offset, in_tile
from partitioner.partition.candidates import OpPlan, best_plan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import emit_local, local_operands, problem_of, rule_for
from partitioner.registry import partition
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import GatherAttrs, ScatterAttrs


@partition(Opcode.GATHER)
def partition_gather(
    context: PartitionContext, gather: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    rule = rule_for(gather)
    plan = best_plan(problem_of(context, gather, rule))
    table, ids = local_operands(context, gather, rule, plan)
    split = [d for d in owned_gather_dims(gather) if plan.operands[0].dims[d]]
    if not split:
        return emit_local(context, gather, plan, [table, ids])
    attrs = gather.attrs_as(GatherAttrs)
    parts = _components(context, ids, attrs.index_vector_dim)
    inside: HloInstruction | None = None
    for d in split:
        k = attrs.start_index_map.index(d)
        size = gather.operand(0).dims[d]
        wanted = clamped(context, parts[k], size - 1)
        parts[k] = from_offset(context, wanted, plan.operands[0], d, size)
        here = in_tile(context, parts[k], table.dims[d])
        inside = here if inside is None else context.builder.logical_and(inside, here)
    assert inside is not None
    shifted = _joined(context, parts, ids, attrs.index_vector_dim)
    (found,) = emit_local(context, gather, plan, [table, shifted])
    hlo = _zero_outside(context, gather, found.hlo, inside)
    return (ShardedValue(hlo, found.state, found.shape),)


@partition(Opcode.SCATTER)
def partition_scatter(
    context: PartitionContext, scatter: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    rule = rule_for(scatter)
    plan = best_plan(problem_of(context, scatter, rule))
    operands = local_operands(context, scatter, rule, plan)
    count = scatter.num_operands // 2
    attrs = scatter.attrs_as(ScatterAttrs)
    split = [d for d in owned_scatter_dims(scatter) if plan.operands[0].dims[d]]
    if split:
        operands[count] = _shifted_ids(context, scatter, plan, operands[count], split, attrs)
    return emit_local(context, scatter, plan, operands)


def _shifted_ids(
    context: PartitionContext,
    scatter: HloInstruction,
    plan: OpPlan,
    ids: HloInstruction,
    split: list[int],
    attrs: ScatterAttrs,
) -> HloInstruction:
    """Return index vectors relative to this device's tile; indices outside it are out of range for the local scatter.

    The only elements beyond the global size are the last tile's padding: writing there changes no element.
    """
    parts = _components(context, ids, attrs.index_vector_dim)
    for d in split:
        k = attrs.scatter_dims_to_operand_dims.index(d)
        parts[k] = from_offset(context, parts[k], plan.operands[0], d, scatter.operand(0).dims[d])
    return _joined(context, parts, ids, attrs.index_vector_dim)


def _components(
    context: PartitionContext, ids: HloInstruction, vector_dim: int
) -> list[HloInstruction]:
    """Return each component of the index vectors as an s32 array over the batch dimensions."""
    positions = as_position(context, ids)
    dims = ids.dims
    if vector_dim == len(dims):
        return [positions]
    b = context.builder
    batch = [n for d, n in enumerate(dims) if d != vector_dim]
    return [
        b.reshape(b.slice_along(positions, vector_dim, k, k + 1), batch)
        for k in range(dims[vector_dim])
    ]


def _joined(
    context: PartitionContext, parts: list[HloInstruction], ids: HloInstruction, vector_dim: int
) -> HloInstruction:
    """Join components to index vectors with the dimensions of ``ids``."""
    if vector_dim == len(ids.dims):
        return parts[0]
    b = context.builder
    one = [1 if d == vector_dim else n for d, n in enumerate(ids.dims)]
    columns = [b.reshape(part, one) for part in parts]
    return columns[0] if len(columns) == 1 else b.concatenate(columns, vector_dim)


def _zero_outside(
    context: PartitionContext, gather: HloInstruction, found: HloInstruction, inside: HloInstruction
) -> HloInstruction:
    """Return ``found`` where ``inside`` (over the batch dimensions) is true, zeros elsewhere."""
    b = context.builder
    mask = b.broadcast(inside, gather_batch_positions(gather), found.dims) if found.dims else inside
    return b.select(mask, found, b.broadcast_scalar(b.scalar_like(found, 0), found.dims))
