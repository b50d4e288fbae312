"""Reductions that choose among their arguments (argmax, argmin) over a sharded dimension, in two stages.

    x [i, j] split along j  -> local reduce [i] -> gather [s, i] over j's s shards -> reduce again -> [i]

This is correct because choosing twice from a repeated argument changes nothing: an init value counts once however often
it is given, so padding may hold it. The gathered array is as small as the result.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.devices.axes import Axes
from partitioner.ops.reducers import chooses_an_argument, reduction_of
from partitioner.partition.candidates import best_plan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import emit_local, problem_of
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import partition
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape


@partition(Opcode.REDUCE)
def partition_chosen_reduce(
    context: PartitionContext, reduce: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Reduce in two stages. Declines (None) reductions of a known kind, reductions that do not choose an argument, and
    plans that split no reduced dimension.
    """
    if reduction_of(reduce.to_apply) is not None or not chooses_an_argument(reduce.to_apply):
        return None
    plan = best_plan(problem_of(context, reduce, two_stage_rule(reduce)))
    count = reduce.num_operands // 2
    reduced = reduce.attrs_as(DimensionsAttrs).dimensions
    axes = tuple(a for d in reduced for a in plan.operands[0].dims[d])
    if not axes:
        return None
    values = [
        context.reshard(context.value(operand), state)
        for operand, state in zip(reduce.operands, plan.operands, strict=True)
    ]
    inits = [value.hlo for value in values[count:]]
    inputs = [
        _filled(context, value, init, reduced)
        for value, init in zip(values[:count], inits, strict=True)
    ]
    chosen = emit_local(context, reduce, plan, [*inputs, *inits])
    rows = [_gather_shards(context, value, axes) for value in chosen]
    again = _reduce_rows(context, reduce, rows, inits)
    return tuple(replace(value, hlo=hlo) for value, hlo in zip(chosen, again, strict=True))


def two_stage_rule(reduce: HloInstruction) -> OpShardingRule:
    """Return the rule with reduced dimensions as factors of the inputs alone: splitting them leaves one choice per
    shard.
    """
    inputs = range(reduce.num_operands // 2)
    reduced = reduce.attrs_as(DimensionsAttrs).dimensions
    rule = RuleBuilder.for_instruction(reduce)
    position = 0
    for d, size in enumerate(reduce.operand(0).dims):
        if d in reduced:
            rule.factor(size, dict.fromkeys(inputs, d))
        else:
            rule.factor(size, dict.fromkeys(inputs, d), dict.fromkeys(inputs, position))
            position += 1
    return rule.build()


def _filled(
    context: PartitionContext, value: ShardedValue, init: HloInstruction, dims: tuple[int, ...]
) -> HloInstruction:
    """Return the local input with its padding along ``dims`` replaced by the init value."""
    keep = context.valid(value, dims)
    if keep is None:
        return value.hlo
    b = context.builder
    return b.select(keep, value.hlo, b.broadcast_scalar(init, value.hlo.dims))


def _gather_shards(context: PartitionContext, value: ShardedValue, axes: Axes) -> HloInstruction:
    """Gather every shard's choice onto every device: [shards, ...]."""
    row = context.builder.reshape(value.hlo, (1, *value.hlo.dims))
    shape = value.shape.with_dims((context.axes.count(axes), *value.shape.dims))
    rows = ShardedValue(row, ShardState((axes, *value.state.dims)), shape)
    return context.reshard(rows, ShardState(((), *value.state.dims))).hlo


def _reduce_rows(
    context: PartitionContext,
    reduce: HloInstruction,
    rows: list[HloInstruction],
    inits: list[HloInstruction],
) -> list[HloInstruction]:
    """Reduce the choices of the shards to one."""
    b = context.builder
    result = b.create(
        Opcode.REDUCE,
        (*rows, *inits),
        DimensionsAttrs((0,)),
        calls=[context.copy_callee(reduce.to_apply)],
        name=reduce.name,
    )
    if isinstance(result.shape, ArrayShape):
        return [result]
    return [b.get_tuple_element(result, i) for i in range(len(rows))]
