"""Custom calls that steer propagation and compute nothing: sharding groups and propagation barriers.

xla.sdy.ShardingGroup        the operand joins group xla.sdy.sharding_group_id; no result
xla.sdy.PropagationBarrier   axes pass only in xla.sdy.allowed_direction: 0 none, 1 forward, 2 backward, 3 both
ShardBarrierFrom             GSPMD's: nothing passes from the operand to the users
ShardBarrierTo               GSPMD's: nothing passes from the users to the operand
"""

from __future__ import annotations

import re

from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.propagation.op_priority import Direction
from partitioner.propagation.value_graph import ValueGraph, ValueShardings
from partitioner.registry import partition_target, propagate_target
from spmd.errors import ShardingError
from spmd.hlo import HloInstruction
from spmd.ops.custom_call import custom_call_target

GROUP = "xla.sdy.ShardingGroup"
GROUP_ID = "xla.sdy.sharding_group_id"
BARRIER = "xla.sdy.PropagationBarrier"
ALLOWED_DIRECTION = "xla.sdy.allowed_direction"

_GSPMD_BARRIERS = {"ShardBarrierFrom": Direction.BACKWARD, "ShardBarrierTo": Direction.FORWARD}
#: ``2 : i32``, as MLIR prints an integer attribute.
_INTEGER = re.compile(r"\s*(\d{1,19})\s*(?::\s*i\d+)?\s*")


@propagate_target(GROUP)
def propagate_group(graph: ValueGraph, call: HloInstruction) -> ValueShardings:
    number = _integer(call, GROUP_ID)
    for operand in call.operands:
        for sharding in graph.shardings(operand):
            if sharding is not None:
                graph.join_group(f"sharding group {number}", sharding, aligned=True)
    return graph.new_shardings(call.shape, call.name)


@partition_target(GROUP)
def partition_group(_: PartitionContext, call: HloInstruction) -> tuple[ShardedValue, ...]:
    """Remove the call. Raises ShardingError if its result is used."""
    if call.users:
        raise ShardingError(f"{call.name}: a sharding group has no value that could be used")
    return ()


@propagate_target(BARRIER, *_GSPMD_BARRIERS)
def propagate_barrier(graph: ValueGraph, call: HloInstruction) -> ValueShardings:
    results = graph.new_shardings(call.shape, call.name)
    for operand, result in zip(graph.shardings(call.operand(0)), results, strict=True):
        graph.connect_same(operand, result, call.name, _allowed(call))
    graph.annotate(call, results)
    return results


@partition_target(BARRIER, *_GSPMD_BARRIERS)
def partition_barrier(context: PartitionContext, call: HloInstruction) -> tuple[ShardedValue, ...]:
    """Return the operand unchanged: its users reshard it if they need another state."""
    return context.values(call.operand(0))


def _allowed(call: HloInstruction) -> Direction:
    found = _GSPMD_BARRIERS.get(custom_call_target(call))
    if found is not None:
        return found
    number = _integer(call, ALLOWED_DIRECTION)
    if number > Direction.BOTH.value:
        raise ShardingError(f"{call.name}: {ALLOWED_DIRECTION} is 0 to 3, found {number}")
    return Direction(number)


def _integer(call: HloInstruction, key: str) -> int:
    text = call.annotations.frontend(key)
    match = _INTEGER.fullmatch(text) if text is not None else None
    if match is None:
        raise ShardingError(f"{call.name}: expected {key} to be a number, found {text!r}")
    return int(match[1])
