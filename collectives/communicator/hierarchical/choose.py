"""Choice of the two-level algorithm of each collective, by bytes over the links and by rounds.

Every member comes to the same choice: it depends on the group's nodes, and on shapes and types, alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from collectives.communicator.hierarchical.all_gather_rows import (
    BroadcastRow,
    GatherRows,
    ReduceRows,
)
from collectives.communicator.hierarchical.all_to_all_blocks import BatchedAllToAll, block_bytes_of
from collectives.communicator.hierarchical.groups import GroupNodes, HierarchicalPlan
from collectives.communicator.hierarchical.reductions import (
    FoldedAllReduce,
    FoldedReduceScatter,
    SpreadAllReduce,
    batches_of,
)
from collectives.communicator.hierarchical.running_prefix import Vector
from collectives.communicator.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CollectiveBroadcast,
    ReduceScatter,
)
from collectives.communicator.messages.message_algorithms import ONE_SHOT_BYTES
from collectives.communicator.node.shared_buffers import Buffers
from collectives.communicator.reduction import accumulator_type
from spmd.registry import Registry

ROUND_BYTES = 1 << 16
"""What a node's link carries in the time of one more round of messages: some 10 us at 50 Gb/s."""

BATCH_BYTES = 1 << 14
"""Up to this many bytes for each member an all-to-all is batched: a message costs more than a copy there."""

Planner: TypeAlias = Callable[[Any, GroupNodes, Buffers], HierarchicalPlan | None]
"""(collective, its group's nodes, one member's buffers) -> plan; None where messages alone are as good."""

PLANNERS: Registry[type[Collective], Planner] = Registry("hierarchical collective")


def hierarchical_plan(
    collective: Collective, nodes: GroupNodes, buffers: Buffers
) -> HierarchicalPlan | None:
    """None where the group has no two levels, or they bring nothing."""
    planner = PLANNERS.get(type(collective)) if nodes.is_hierarchical else None
    return None if planner is None else planner(collective, nodes, buffers)


@PLANNERS.register(AllGather)
def all_gather(
    collective: AllGather, nodes: GroupNodes, buffers: Buffers
) -> HierarchicalPlan | None:
    return GatherRows(nodes, buffers, collective.dimension)


@PLANNERS.register(CollectiveBroadcast)
def collective_broadcast(
    _collective: CollectiveBroadcast, nodes: GroupNodes, buffers: Buffers
) -> HierarchicalPlan | None:
    """Messages alone are as good where no other node has two members."""
    others = nodes.nodes[1:]
    return BroadcastRow(nodes, buffers) if any(len(node) > 1 for node in others) else None


@PLANNERS.register(AllReduce)
def all_reduce(
    collective: AllReduce, nodes: GroupNodes, buffers: Buffers
) -> HierarchicalPlan | None:
    num_bytes = sum(operand.nbytes for operand in buffers.operands)
    if num_bytes * nodes.count <= ONE_SHOT_BYTES:
        return ReduceRows(nodes, buffers, collective.reduction)
    batches = batches_of(buffers)
    spread = SpreadAllReduce(nodes, batches, collective.reduction)
    if not nodes.is_one_after_the_other:
        return spread
    hops = len(nodes.nodes) - 1
    back = hops * num_bytes
    fold_cost = _cost(nodes, _prefix_bytes(nodes, buffers) + back, 2 * hops)
    spread_cost = _cost(nodes, num_bytes * nodes.crossings // nodes.count + back, 2)
    folded = FoldedAllReduce(nodes, batches, collective.reduction)
    return folded if fold_cost <= spread_cost else spread


@PLANNERS.register(ReduceScatter)
def reduce_scatter(
    collective: ReduceScatter, nodes: GroupNodes, buffers: Buffers
) -> HierarchicalPlan | None:
    if not nodes.is_one_after_the_other:
        return None
    num_bytes = sum(operand.nbytes for operand in buffers.operands)
    hops = len(nodes.nodes) - 1
    arrive = num_bytes * (nodes.count - len(nodes.nodes[-1])) // nodes.count
    fold_cost = _cost(nodes, _prefix_bytes(nodes, buffers) + arrive, hops + 1)
    messages_cost = _cost(nodes, num_bytes * nodes.crossings // nodes.count, 1)
    if fold_cost >= messages_cost:
        return None
    vectors = tuple(Vector(operand.dtype, operand.size) for operand in buffers.operands)
    return FoldedReduceScatter(nodes, vectors, collective.dimension, collective.reduction)


@PLANNERS.register(AllToAll)
def all_to_all(
    collective: AllToAll, nodes: GroupNodes, buffers: Buffers
) -> HierarchicalPlan | None:
    operands = buffers.operands
    if collective.dimension is None and len({(one.shape, one.dtype) for one in operands}) > 1:
        return None
    block_bytes = block_bytes_of(operands, nodes.count, collective.dimension)
    if block_bytes > BATCH_BYTES:
        return None
    return BatchedAllToAll(nodes, collective.dimension, collective.joined, block_bytes)


def _prefix_bytes(nodes: GroupNodes, buffers: Buffers) -> int:
    """Return the bytes that a chain reduction sends over all links. The first link carries a single value in its own
    type."""
    num_bytes = sum(operand.nbytes for operand in buffers.operands)
    wide = sum(
        operand.size * accumulator_type(operand.dtype).itemsize for operand in buffers.operands
    )
    first = num_bytes if len(nodes.nodes[0]) == 1 else wide
    return first + wide * (len(nodes.nodes) - 2)


def _cost(nodes: GroupNodes, link_bytes: int, rounds: int) -> int:
    """In bytes that a node's link carries in the time it takes."""
    return link_bytes // len(nodes.nodes) + rounds * ROUND_BYTES
