"""Matrix products: batch and free dimensions pass through, contracting dimensions are summed.

    dot         [b, i, k] x [b, k, j]             -> [b, i, j]     k: SUM
    ragged-dot  [m, k] x [g, k, n], groups [g]    -> [m, n]        k: SUM; m and g replicated

Letters are factors: equal letters are one index of the op.
"""

from __future__ import annotations

from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import sharding_rule
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DotAttrs, RaggedDotAttrs
from spmd.ops.dot import free_dims


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
    """Return the rule of the form whose ragged dimension is a free dimension of lhs; None (replicate) for the others.

    Rows of lhs belong to groups by their global position, so the ragged and the group dimension are not split.
    """
    attrs = dot.attrs_as(RaggedDotAttrs)
    dims = attrs.dot
    lhs_taken = (*dims.lhs_batch, *dims.lhs_contracting)
    if len(attrs.lhs_ragged_dims) != 1 or attrs.lhs_ragged_dims[0] in lhs_taken or dims.lhs_batch:
        return None
    lhs, rhs = dot.operand(0).dims, dot.operand(1).dims
    rule = RuleBuilder.for_instruction(dot)
    position = 0
    for d in free_dims(len(lhs), lhs_taken):
        if d not in attrs.lhs_ragged_dims:
            rule.factor(lhs[d], {0: d}, {0: position})
        position += 1
    for d in free_dims(len(rhs), (*dims.rhs_contracting, *attrs.rhs_group_dims)):
        rule.factor(rhs[d], {1: d}, {0: position})
        position += 1
    for i, j in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
        rule.factor(lhs[i], {0: i, 1: j}, reduction=ReductionKind.SUM)
    return rule.build()


@sharding_rule(Opcode.SCALED_DOT)
def scaled_dot_rule(_: HloInstruction) -> OpShardingRule | None:
    """Return None: scales cover blocks of the operands' elements, so the op is replicated."""
    return None
