"""Top-k over a sharded dimension: each device finds the k best of its tile; the best of these are the global result.

    x [i, s] split along s  -> local topk [i, k] -> gather [i, k*shards] -> topk -> positions back to global indices

Among equal values the lowest index comes first, as in one topk: tiles are gathered in order. Padding holds the worst
value of the type and lies after every element that equals it, so it is not chosen while k elements exist.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.ops.elementwise import result_leaf_dims
from partitioner.partition.candidates import best_plan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import problem_of
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import partition
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import TopKAttrs
from spmd.ops.reduction import identity_value
from spmd.passes.topk_rewriter import gather_along
from spmd.shape import as_array, leaves


@partition(Opcode.TOPK)
def partition_topk(
    context: PartitionContext, topk: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Merge the top k of all shards. Declines (None) plans that do not split the searched dimension, and empty operands
    and results.
    """
    plan = best_plan(problem_of(context, topk, local_rule(topk)))
    state = plan.operands[0]
    last = state.rank - 1
    attrs = topk.attrs_as(TopKAttrs)
    if not state.dims[last] or not attrs.k or 0 in topk.operand(0).dims:
        return None
    b = context.builder
    value = context.reshard(context.value(topk.operand(0)), state)
    worst = ReductionKind.MAX if attrs.largest else ReductionKind.MIN
    x = context.mask_padding(value, (last,), identity_value(worst, value.shape.element_type))
    values, indices = _topk(context, x, replace(attrs, k=min(attrs.k, x.dims[last])))
    offset = context.offset(state, last, value.shape.dims[last])
    indices = b.add(indices, b.broadcast_scalar(offset, indices.dims))
    values, indices = (_gathered(context, x, state, last) for x in (values, indices))
    best, positions = _topk(context, values, attrs)
    chosen = (best, gather_along(b, indices, positions, last))
    shapes = [as_array(shape).without_layout() for _, shape in leaves(topk.shape)]
    return tuple(
        ShardedValue(hlo, state, shape)
        for hlo, state, shape in zip(chosen, plan.results, shapes, strict=True)
    )


def local_rule(topk: HloInstruction) -> OpShardingRule:
    """Return the rule with the searched dimension as a factor of the operand alone: splitting it leaves one choice per
    shard.
    """
    rule = RuleBuilder.for_instruction(topk)
    dims = topk.operand(0).dims
    results = range(len(result_leaf_dims(topk)))
    for d, size in enumerate(dims):
        rule.factor(size, {0: d}, dict.fromkeys(results, d) if d < len(dims) - 1 else {})
    return rule.build()


def _topk(
    context: PartitionContext, x: HloInstruction, attrs: TopKAttrs
) -> tuple[HloInstruction, HloInstruction]:
    b = context.builder
    found = b.create(Opcode.TOPK, (x,), attrs)
    return b.get_tuple_element(found, 0), b.get_tuple_element(found, 1)


def _gathered(
    context: PartitionContext, x: HloInstruction, state: ShardState, dim: int
) -> HloInstruction:
    """Gather every shard's candidates along ``dim``, in shard order."""
    tiles = tuple(n * k for n, k in zip(x.dims, state.shards(context.axes), strict=True))
    value = ShardedValue(x, state, x.array_shape.with_dims(tiles))
    return context.reshard(value, state.with_dim(dim, ())).hlo
