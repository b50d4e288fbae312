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
from spmd.shape import ArrayShape, leaves


@sharding_rule(
    Opcode.ABS,
    Opcode.ACOS,
    Opcode.ACOSH,
    Opcode.ADD,
    Opcode.AND,
    Opcode.ASIN,
    Opcode.ASINH,
    Opcode.ATAN2,
    Opcode.ATANH,
    Opcode.CBRT,
    Opcode.CEIL,
    Opcode.CLAMP,
    Opcode.COMPARE,
    Opcode.COMPLEX,
    Opcode.CONVERT,
    Opcode.COPY,
    Opcode.COSH,
    Opcode.COSINE,
    Opcode.COUNT_LEADING_ZEROS,
    Opcode.DIVIDE,
    Opcode.DOMAIN,
    Opcode.ERF,
    Opcode.EXPONENTIAL,
    Opcode.EXPONENTIAL_MINUS_ONE,
    Opcode.FLOOR,
    Opcode.IMAG,
    Opcode.IS_FINITE,
    Opcode.LOG,
    Opcode.LOG_PLUS_ONE,
    Opcode.LOGISTIC,
    Opcode.MAP,
    Opcode.MAXIMUM,
    Opcode.MINIMUM,
    Opcode.MULTIPLY,
    Opcode.NEGATE,
    Opcode.NOT,
    Opcode.OR,
    Opcode.POPCNT,
    Opcode.POWER,
    Opcode.REAL,
    Opcode.REDUCE_PRECISION,
    Opcode.REMAINDER,
    Opcode.ROUND_NEAREST_AFZ,
    Opcode.ROUND_NEAREST_EVEN,
    Opcode.RSQRT,
    Opcode.SELECT,
    Opcode.SHIFT_LEFT,
    Opcode.SHIFT_RIGHT_ARITHMETIC,
    Opcode.SHIFT_RIGHT_LOGICAL,
    Opcode.SIGN,
    Opcode.SINE,
    Opcode.SINH,
    Opcode.SQRT,
    Opcode.STOCHASTIC_CONVERT,
    Opcode.SUBTRACT,
    Opcode.TAN,
    Opcode.TANH,
    Opcode.XOR,
)
def all_dimensions_pass(instruction: HloInstruction) -> OpShardingRule | None:
    """Return the rule in which operands of the result's sizes share its factors and scalars have none. None if the
    result is no single array.
    """
    if not isinstance(instruction.shape, ArrayShape):
        return None
    dims = instruction.shape.dims
    whole = [i for i, operand in enumerate(instruction.operands) if has_dims(operand, dims)]
    rule = RuleBuilder.for_instruction(instruction)
    for d, size in enumerate(dims):
        rule.factor(size, dict.fromkeys(whole, d), {0: d})
    return rule.build()


@sharding_rule(Opcode.OPT_BARRIER)
def barrier_rule(barrier: HloInstruction) -> OpShardingRule | None:
    """Return the rule of a barrier of one array. The driver ties a tuple's elements leaf by leaf, without factors."""
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
