"""Values that are cheaper to make again than to move: splats, counters, broadcasts.

A constant of equal elements that two ops want split in two ways would otherwise be sent around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from partitioner.registry import REMAKERS

if TYPE_CHECKING:
    from partitioner.partition.context import PartitionContext, ShardedValue
    from partitioner.partition.shard_state import ShardState


def remake_cost(context: PartitionContext, value: ShardedValue, state: ShardState) -> float:
    """Price of making ``value``, whose origin is known, in ``state`` from its operands; infinite
    for a partial state.
    """
    if value.origin is None or state.partial:
        return float("inf")
    cost, _ = REMAKERS[value.origin.opcode]
    return cost(context, value.origin, state)


def remake_value(context: PartitionContext, value: ShardedValue, state: ShardState) -> ShardedValue:
    assert value.origin is not None
    _, make = REMAKERS[value.origin.opcode]
    return make(context, value.origin, state)
