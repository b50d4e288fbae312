"""Ops that no sharding rule describes, since they take or return tokens or tuples: they run on replicated arrays.

A token orders effects and holds no data, so the partitioner treats it as a scalar that every device has.
"""

from __future__ import annotations

from partitioner.annotations.reader import without_shardings
from partitioner.ops.tuple import pack, unpack
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from spmd.hlo import HloInstruction
from spmd.shape import ArrayShape, Shape, leaves


def needs_unsharded_operands(instruction: HloInstruction) -> bool:
    """Return whether the op takes an operand that is no array, or returns a token."""
    operands = any(not isinstance(operand.shape, ArrayShape) for operand in instruction.operands)
    return operands or any(
        not isinstance(shape, ArrayShape) for _, shape in leaves(instruction.shape)
    )


def replicated_states(shape: Shape) -> list[ShardState]:
    """Return, per leaf, the state in which every device has all of it."""
    return [
        ShardState.replicated(leaf.rank if isinstance(leaf, ArrayShape) else 0)
        for _, leaf in leaves(shape)
    ]


def replicated_operands(
    context: PartitionContext, instruction: HloInstruction
) -> list[HloInstruction]:
    return [
        pack(context, [context.replicate(v) for v in context.values(operand)], operand.shape)
        for operand in instruction.operands
    ]


def partition_unsharded(
    context: PartitionContext, instruction: HloInstruction
) -> tuple[ShardedValue, ...]:
    """Clone the op unchanged, on replicated operands."""
    clone = context.target.create(
        instruction.opcode,
        instruction.shape,
        replicated_operands(context, instruction),
        instruction.attrs,
        name=instruction.name,
        called_computations=[context.copy_callee(c) for c in instruction.called_computations],
        annotations=without_shardings(instruction.annotations),
    )
    return unpack(context, clone, replicated_states(instruction.shape), instruction.shape)
