"""Rematerialization of values that are cheaper to recompute than to move: splats, counters, broadcasts.

Otherwise a splat constant that two ops want split in two ways would be sent between devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from partitioner.registry import REMATERIALIZERS

if TYPE_CHECKING:
    from partitioner.partition.context import PartitionContext, ShardedValue
    from partitioner.partition.shard_state import ShardState


def rematerialization_cost(
    context: PartitionContext, value: ShardedValue, state: ShardState
) -> float:
    """Return the cost of recomputing ``value``, whose origin is known, in ``state``; infinite for a partial state."""
    if value.producer is None or state.partial:
        return float("inf")
    cost, _ = REMATERIALIZERS[value.producer.opcode]
    return cost(context, value.producer, state)


def rematerialize_value(
    context: PartitionContext, value: ShardedValue, state: ShardState
) -> ShardedValue:
    assert value.producer is not None
    _, make = REMATERIALIZERS[value.producer.opcode]
    return make(context, value.producer, state)
