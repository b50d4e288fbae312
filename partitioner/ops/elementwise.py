"""Elementwise operations: every dimension passes through.

    add     [i, j] + [i, j]         -> [i, j]
    select  [] ? [i, j] : [i, j]    -> [i, j]      a scalar predicate (or clamp bound) has no dimensions
    map     f([i], [i])             -> [i]

Letters are factors: equal letters are one index of the op.
"""

from __future__ import annotations

from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import sharding_rule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.elementwise_attributes import ELEMENTWISE
from spmd.shape import ArrayShape, leaves


@sharding_rule(*ELEMENTWISE, Opcode.COPY, Opcode.DOMAIN, Opcode.MAP)
def all_dimensions_pass(instruction: HloInstruction) -> OpShardingRule | None:
    """Return the rule in which operands of the result's sizes share its factors and scalars have none. None if the
    result is no single array.
    """
    if not isinstance(instruction.shape, ArrayShape):
        return None
    dims = instruction.shape.dims
    same_dims = [i for i, operand in enumerate(instruction.operands) if has_dims(operand, dims)]
    rule = RuleBuilder.for_instruction(instruction)
    for d, size in enumerate(dims):
        rule.factor(size, dict.fromkeys(same_dims, d), {0: d})
    return rule.build()


@sharding_rule(Opcode.OPT_BARRIER)
def barrier_rule(barrier: HloInstruction) -> OpShardingRule | None:
    """Return the rule of a barrier of one array. The driver connects a tuple's elements leaf by leaf,
    without factors.
    """
    return all_dimensions_pass(barrier)


@sharding_rule(Opcode.ADD_DEPENDENCY)
def dependency_rule(instruction: HloInstruction) -> OpShardingRule | None:
    """Return the rule in which the value passes through; the token has no dimensions."""
    return all_dimensions_pass(instruction)


@sharding_rule(Opcode.BITCAST_CONVERT)
def bitcast_convert_rule(convert: HloInstruction) -> OpShardingRule:
    """Return the rule in which shared leading dimensions pass; the minor dimension that a change of width adds or
    removes is not split.

    f32[i] -> u8[i, 4]        u8[i, 4] -> f32[i]
    """
    rule = RuleBuilder.for_instruction(convert)
    for d, (source, size) in enumerate(zip(convert.operand(0).dims, convert.dims, strict=False)):
        if source == size:
            rule.factor(size, {0: d}, {0: d})
    return rule.build()


def has_dims(instruction: HloInstruction, dims: tuple[int, ...]) -> bool:
    return isinstance(instruction.shape, ArrayShape) and instruction.shape.dims == dims


def result_leaf_dims(instruction: HloInstruction) -> list[tuple[int, ...]]:
    """Return the sizes of every result leaf that is an array, in leaf order."""
    return [shape.dims for _, shape in leaves(instruction.shape) if isinstance(shape, ArrayShape)]
