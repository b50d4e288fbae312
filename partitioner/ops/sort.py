"""Sorting: the sorted dimension stays whole, all others pass through.

    sort  keys [i, s], values [i, s]  -> [i, s], [i, s]
    topk  [i, s]                      -> [i, k], [i, k]

Letters are factors; the sorted one is needed whole by every device.
"""

from __future__ import annotations

from partitioner.ops.elementwise import result_leaf_dims
from partitioner.registry import sharding_rule
from partitioner.rule import OpShardingRule, RuleBuilder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import SortAttrs


@sharding_rule(Opcode.SORT)
def sort_rule(sort: HloInstruction) -> OpShardingRule:
    return rows_pass(sort, sort.attrs_as(SortAttrs).dimension)


@sharding_rule(Opcode.TOPK)
def topk_rule(topk: HloInstruction) -> OpShardingRule:
    return rows_pass(topk, topk.operand(0).array_shape.rank - 1)


def rows_pass(instruction: HloInstruction, whole: int) -> OpShardingRule:
    """Every dimension but ``whole`` is shared by all operands and results."""
    rule = RuleBuilder.for_instruction(instruction)
    operands = range(instruction.num_operands)
    results = range(len(result_leaf_dims(instruction)))
    for d, size in enumerate(instruction.operand(0).dims):
        if d != whole:
            rule.factor(size, dict.fromkeys(operands, d), dict.fromkeys(results, d))
    return rule.build()
