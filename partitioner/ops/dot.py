"""Matrix products: batch and free dimensions pass through, contracting dimensions are summed.

    dot         [b, i, k] x [b, k, j]             -> [b, i, j]     k: SUM
    ragged-dot  [m, k] x [g, k, n], groups [g]    -> [m, n]        k: SUM; m and g replicated
    ragged-dot  [m, k] x [m, n], groups [g]       -> [g, k, n]     m and g replicated

Letters are factors: equal letters are one index of the op.
"""

from __future__ import annotations

from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import sharding_rule
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DotAttrs, RaggedDotAttrs
from spmd.ops.dot import free_dims, group_prefix


@sharding_rule(Opcode.DOT)
def dot_rule(dot: HloInstruction) -> OpShardingRule | None:
    """Return the rule of a dot; None for sparse operands (a third operand of metadata)."""
    if dot.num_operands != 2:
        return None
    dims = dot.attrs_as(DotAttrs)
    lhs, rhs = dot.operand(0).dims, dot.operand(1).dims
    rule = RuleBuilder.for_instruction(dot)
    for position, (i, j) in enumerate(zip(dims.lhs_batch, dims.rhs_batch, strict=True)):
        rule.factor(lhs[i], {0: i, 1: j}, {0: position})
    position = len(dims.lhs_batch)
    for operand, sizes, taken in (
        (0, lhs, (*dims.lhs_batch, *dims.lhs_contracting)),
        (1, rhs, (*dims.rhs_batch, *dims.rhs_contracting)),
    ):
        for d in free_dims(len(sizes), taken):
            rule.factor(sizes[d], {operand: d}, {0: position})
            position += 1
    for i, j in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
        rule.factor(lhs[i], {0: i, 1: j}, reduction=ReductionKind.SUM)
    return rule.build()


@sharding_rule(Opcode.RAGGED_DOT)
def ragged_dot_rule(dot: HloInstruction) -> OpShardingRule | None:
    """Return the rule of a ragged product; None (replicate) if the groups are runs of a batch dimension.

    Indices of the ragged dimension belong to groups by their global position, so neither it nor the group dimension is
    split. A dimension along which group sizes differ is split in all operands alike.
    """
    attrs = dot.attrs_as(RaggedDotAttrs)
    dims, (ragged,) = attrs.dot, attrs.lhs_ragged_dims
    if ragged in dims.lhs_batch:
        return None
    lhs, rhs, sizes = (operand.dims for operand in dot.operands)
    rule = RuleBuilder.for_instruction(dot)
    prefix = group_prefix(len(lhs), attrs) if len(sizes) > 1 else ()
    of_groups = {d: {2: i} for i, d in enumerate(prefix)}
    position = int(ragged in dims.lhs_contracting)  # the groups come first in the result
    for i, j in zip(dims.lhs_batch, dims.rhs_batch, strict=True):
        rule.factor(lhs[i], {0: i, 1: j, **of_groups.get(i, {})}, {0: position})
        position += 1
    for d in free_dims(len(lhs), dims.lhs_batch, dims.lhs_contracting):
        if d != ragged:
            rule.factor(lhs[d], {0: d, **of_groups.get(d, {})}, {0: position})
        position += 1
    for d in free_dims(len(rhs), dims.rhs_batch, dims.rhs_contracting, attrs.rhs_group_dims):
        rule.factor(rhs[d], {1: d}, {0: position})
        position += 1
    for i, j in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
        if i != ragged:
            rule.factor(lhs[i], {0: i, 1: j, **of_groups.get(i, {})}, reduction=ReductionKind.SUM)
    return rule.build()


@sharding_rule(Opcode.SCALED_DOT)
def scaled_dot_rule(_: HloInstruction) -> OpShardingRule | None:
    """Return None: scales cover blocks of the operands' elements, so the op is replicated."""
    return None
