"""Elementwise operations: every dimension passes through.

    add     [i, j] + [i, j]         -> [i, j]
    select  [] ? [i, j] : [i, j]    -> [i, j]      a scalar predicate (or clamp bound) has no dimensions
    map     f([i], [i])             -> [i]

Letters are factors: equal letters are one index of the op.
"""

from __future__ import annotations

from collections.abc import Iterable

from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import sharding_rule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.elementwise_ops import ELEMENTWISE
from spmd.shape import ArrayShape, leaves


@sharding_rule(
    *ELEMENTWISE,
    Opcode.COPY,
    Opcode.DOMAIN,
    Opcode.MAP,
    Opcode.OPT_BARRIER,
    Opcode.ADD_DEPENDENCY,
    Opcode.IOTA,
    Opcode.CONSTANT,
    Opcode.REVERSE,
)
def all_dimensions_pass(instruction: HloInstruction) -> OpShardingRule | None:
    """Return the rule in which operands of the result's sizes share its factors; scalars and tokens have none.

    Without operands each dimension has a factor of its own. Reversed dimensions pass too: their tiles are exchanged
    (mirrored.py). None if the result is no single array: the driver connects a barrier's elements leaf by leaf.
    """
    if not isinstance(instruction.shape, ArrayShape):
        return None
    dims = instruction.shape.dims
    same_dims = [i for i, operand in enumerate(instruction.operands) if has_dims(operand, dims)]
    rule = RuleBuilder.for_instruction(instruction)
    for d, size in enumerate(dims):
        rule.factor(size, dict.fromkeys(same_dims, d), {0: d})
    return rule.build()


@sharding_rule(Opcode.BITCAST_CONVERT)
def bitcast_convert_rule(convert: HloInstruction) -> OpShardingRule:
    """Return the rule in which shared leading dimensions pass; the minor dimension that a change of width adds or
    removes is not split.

    f32[i] -> u8[i, 4]        u8[i, 4] -> f32[i]
    """
    sizes = zip(convert.operand(0).dims, convert.dims, strict=False)
    return dims_pass(convert, [d for d, (source, size) in enumerate(sizes) if source == size])


def dims_pass(instruction: HloInstruction, dims: Iterable[int]) -> OpShardingRule:
    """Return the rule in which ``dims`` pass from the first operand to the result, which keeps their positions."""
    rule = RuleBuilder.for_instruction(instruction)
    for d in dims:
        rule.factor(instruction.dims[d], {0: d}, {0: d})
    return rule.build()


def has_dims(instruction: HloInstruction, dims: tuple[int, ...]) -> bool:
    return isinstance(instruction.shape, ArrayShape) and instruction.shape.dims == dims


def result_leaf_dims(instruction: HloInstruction) -> list[tuple[int, ...]]:
    """Return the sizes of every result leaf that is an array, in leaf order."""
    return [shape.dims for _, shape in leaves(instruction.shape) if isinstance(shape, ArrayShape)]
