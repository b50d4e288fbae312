"""Reductions: the dimensions of the result pass through, reduced ones are combined by the reducer's kind.

    reduce, add      [i, j] init []                 -> [i]             j: SUM, init counts once
    reduce, argmax   [i, j], [i, j] init [], []     -> [i], [i]        j replicated (or two stages, see chosen_reduce)
    reduce-window    [i, w] init []                 -> [i, w]          w windowed: sharded with halos
    select-and-scatter [i, w*k], [i, w] init []     -> [i, w*k]        w passes where windows of k lie side by side
    batch-norm-training [i, f], [f], [f]            -> [i, f], [f], [f]   f passes, i replicated

Letters are factors; ``SUM`` stands for the kind that the reducer computes.
"""

from __future__ import annotations

from partitioner.ops.elementwise import result_leaf_dims
from partitioner.ops.reducers import reduction_of
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, RuleBuilder
from partitioner.registry import sharding_rule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import BatchNormAttrs, DimensionsAttrs, WindowAttrs
from spmd.ops.window import WindowDimension


@sharding_rule(Opcode.REDUCE)
def reduce_rule(reduce: HloInstruction) -> OpShardingRule:
    """Return the rule of a reduce. Operands: n inputs of one shape, n init scalars. A reducer of unknown kind splits no
    reduced dimension.
    """
    count = reduce.num_operands // 2
    inputs = range(count)
    reduced = reduce.attrs_as(DimensionsAttrs).dimensions
    kind = reduction_of(reduce.to_apply)
    rule = RuleBuilder.for_instruction(reduce)
    position = 0
    for d, size in enumerate(reduce.operand(0).dims):
        if d not in reduced:
            rule.factor(size, dict.fromkeys(inputs, d), dict.fromkeys(inputs, position))
            position += 1
        elif kind is not None:
            rule.factor(size, dict.fromkeys(inputs, d), reduction=kind)
    if kind is not None:
        rule.counts_once(*range(count, 2 * count))
    return rule.build()


@sharding_rule(Opcode.REDUCE_WINDOW)
def window_rule(reduce: HloInstruction, *, windowed: bool = True) -> OpShardingRule:
    """Return the rule of a reduce-window. Operands: n inputs, n init scalars. Dimensions with a sliding window pass if
    ``windowed``, else are not split.
    """
    inputs = range(reduce.num_operands // 2)
    window = reduce.attrs_as(WindowAttrs).window
    before, after = reduce.operand(0).dims, result_leaf_dims(reduce)[0]
    rule = RuleBuilder.for_instruction(reduce)
    for d, (size, result) in enumerate(zip(before, after, strict=True)):
        same = is_trivial(window.dims[d])
        if same or windowed:
            dims = dict.fromkeys(inputs, d)
            rule.factor(min(size, result), dims, dims, windowed=not same)
    return rule.build()


@sharding_rule(Opcode.SELECT_AND_SCATTER)
def select_and_scatter_rule(scatter: HloInstruction) -> OpShardingRule:
    """Return the rule of select-and-scatter. Operands: input, source, init scalar. Adjacent windows are tiles of the
    input, one per source element.
    """
    window = scatter.attrs_as(WindowAttrs).window
    rule = RuleBuilder.for_instruction(scatter)
    for d, (size, source) in enumerate(zip(scatter.dims, scatter.operand(1).dims, strict=True)):
        if is_trivial(window.dims[d]):
            rule.factor(size, {0: d, 1: d}, {0: d})
        elif _lies_side_by_side(window.dims[d]) and size == source * window.dims[d].size:
            rule.factor(source, {0: d, 1: d}, {0: d})
            rule.factor(window.dims[d].size, {0: d}, {0: d}, kind=FactorKind.NEED_REPLICATION)
    return rule.build()


def _lies_side_by_side(window: WindowDimension) -> bool:
    return (
        window.size == window.stride
        and window.padding_low == 0
        and window.padding_high == 0
        and window.window_dilation == 1
        and window.base_dilation == 1
    )


@sharding_rule(Opcode.BATCH_NORM_TRAINING, Opcode.BATCH_NORM_GRAD, Opcode.BATCH_NORM_INFERENCE)
def batch_norm_rule(norm: HloInstruction) -> OpShardingRule:
    """Return the rule in which the feature dimension passes. Statistics cover all other dimensions, which are split
    only where the statistics are inputs.
    """
    feature = norm.attrs_as(BatchNormAttrs).feature_index
    dims = norm.operand(0).dims
    rule = RuleBuilder.for_instruction(norm)
    results = [len(sizes) for sizes in result_leaf_dims(norm)]
    for d, size in enumerate(dims):
        if d == feature:
            rule.factor(
                size,
                {
                    i: 0 if operand.array_shape.rank == 1 else d
                    for i, operand in enumerate(norm.operands)
                },
                {i: 0 if rank == 1 else d for i, rank in enumerate(results)},
            )
        elif norm.opcode is Opcode.BATCH_NORM_INFERENCE:
            same_dims = [i for i, operand in enumerate(norm.operands) if operand.dims == dims]
            rule.factor(size, dict.fromkeys(same_dims, d), {0: d})
    return rule.build()


def is_trivial(window: WindowDimension) -> bool:
    """Return whether the window leaves the dimension as it is (reversing one element changes nothing)."""
    return (
        window.size == 1
        and window.stride == 1
        and window.padding_low == 0
        and window.padding_high == 0
        and window.base_dilation == 1
    )
