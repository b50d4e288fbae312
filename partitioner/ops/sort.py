"""Sorting: every device needs all of the sorted dimension; the others pass through.

    sort  keys [i, s], values [i, s]  -> [i, s], [i, s]
    topk  [i, s]                      -> [i, k], [i, k]

Letters are factors; every device needs all of the sorted one, though values before and after a sort may be split along
it.
"""

from __future__ import annotations

from partitioner.ops.elementwise import result_leaf_dims
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, RuleBuilder
from partitioner.registry import sharding_rule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import SortAttrs


@sharding_rule(Opcode.SORT)
def sort_rule(sort: HloInstruction) -> OpShardingRule:
    return rows_pass(sort, sort.attrs_as(SortAttrs).dimension)


@sharding_rule(Opcode.TOPK)
def topk_rule(topk: HloInstruction) -> OpShardingRule:
    return rows_pass(topk, topk.operand(0).array_shape.rank - 1)


def rows_pass(instruction: HloInstruction, row_dim: int) -> OpShardingRule:
    """Return the rule in which every dimension except ``row_dim`` passes. The sharding of ``row_dim`` passes too if it
    keeps its size.
    """
    rule = RuleBuilder.for_instruction(instruction)
    operands = range(instruction.num_operands)
    results = result_leaf_dims(instruction)
    for d, size in enumerate(instruction.operand(0).dims):
        if any(dims[d] != size for dims in results):
            continue
        kind = FactorKind.NEED_REPLICATION if d == row_dim else FactorKind.PASS_THROUGH
        everywhere = dict.fromkeys(range(len(results)), d)
        rule.factor(size, dict.fromkeys(operands, d), everywhere, kind=kind)
    return rule.build()
