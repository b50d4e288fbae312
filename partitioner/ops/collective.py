"""Collectives that the source program already has (manual regions): they act per device, on groups that name all
devices.

Dimensions a collective does not touch pass through; free axes may split them, since every group lies within one
coordinate of the free axes. ``partition-id`` differs along the manual axes.
"""

from __future__ import annotations

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, RuleBuilder
from partitioner.propagation.value_graph import ValueGraph, ValueShardings
from partitioner.registry import partition, propagate_op, sharding_rule
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.groups import device_groups, device_pairs
from spmd.shape import ArrayShape, PrimitiveType


@sharding_rule(Opcode.ALL_REDUCE, Opcode.COLLECTIVE_PERMUTE, Opcode.COLLECTIVE_BROADCAST)
def elementwise_collective_rule(instruction: HloInstruction) -> OpShardingRule:
    """Return the rule in which every dimension of operand i passes through to result i: [i, j] -> [i, j]."""
    rule = RuleBuilder.for_instruction(instruction)
    for position, operand in enumerate(instruction.operands):
        for dim, size in enumerate(operand.dims):
            rule.factor(size, operands={position: dim}, results={position: dim})
    return rule.build()


@sharding_rule(Opcode.ALL_GATHER, Opcode.REDUCE_SCATTER, Opcode.ALL_TO_ALL)
def dimension_collective_rule(instruction: HloInstruction) -> OpShardingRule:
    """Return the rule in which all dimensions except the gathered, scattered or exchanged one pass through."""
    attrs = instruction.attrs_as(CollectiveAttrs)
    rule = RuleBuilder.for_instruction(instruction)
    for position, operand in enumerate(instruction.operands):
        for dim, size in enumerate(operand.dims):
            if dim != attrs.dimension:
                rule.factor(size, operands={position: dim}, results={position: dim})
    if attrs.dimension is None:
        return _exchange_of_tuples(instruction)
    return rule.build()


def _exchange_of_tuples(instruction: HloInstruction) -> OpShardingRule:
    """Return the rule of all-to-all in tuple form: result i comes from operand i of another device, so all share one
    state.
    """
    rule = RuleBuilder.for_instruction(instruction)
    everywhere = range(instruction.num_operands)
    for dim, size in enumerate(instruction.operand(0).dims):
        same = dict.fromkeys(everywhere, dim)
        rule.factor(size, operands=same, results=same, kind=FactorKind.PASS_THROUGH)
    return rule.build()


@propagate_op(
    Opcode.ALL_REDUCE,
    Opcode.ALL_GATHER,
    Opcode.REDUCE_SCATTER,
    Opcode.ALL_TO_ALL,
    Opcode.COLLECTIVE_PERMUTE,
    Opcode.COLLECTIVE_BROADCAST,
)
def propagate_collective(graph: ValueGraph, instruction: HloInstruction) -> ValueShardings:
    """Connect by the rule. The axes it runs across may split neither side, even if no operand is manual (an iota)."""
    return graph.add_by_rule(instruction, manual=axes_across(graph.axes, instruction))


def axes_across(axes: DeviceAxes, instruction: HloInstruction) -> Axes:
    """Return the device axes along which members of one group (or a source and its target) differ, replicas aside."""
    is_permute = isinstance(instruction.attrs, CollectivePermuteAttrs)
    members = (device_pairs if is_permute else device_groups)(
        instruction, axes.num_devices, axes.replicas
    )
    return tuple(
        axis
        for axis in axes.all
        if any(
            _coordinate(axes, axis, d) != _coordinate(axes, axis, m[0]) for m in members for d in m
        )
    )


def _coordinate(axes: DeviceAxes, axis: int, device: int) -> int:
    return device // axes.stride(axis) % axes.sizes[axis]


@propagate_op(Opcode.PARTITION_ID)
def propagate_partition_id(graph: ValueGraph, instruction: HloInstruction) -> ValueShardings:
    """Return the sharding of a scalar that differs along the axes that are manual anywhere in the module."""
    results = graph.new_shardings(instruction.shape, instruction.name)
    graph.flow([], results, adds=graph.region_axes)
    return results


@propagate_op(Opcode.REPLICA_ID)
def propagate_replica_id(graph: ValueGraph, instruction: HloInstruction) -> ValueShardings:
    """Return the sharding of a scalar that is equal on all partitions of a replica."""
    return graph.new_shardings(instruction.shape, instruction.name)


@partition(Opcode.PARTITION_ID, Opcode.REPLICA_ID)
def partition_device_id(
    context: PartitionContext, instruction: HloInstruction
) -> tuple[ShardedValue, ...]:
    clone = context.target.create(instruction.opcode, instruction.shape, name=instruction.name)
    return (ShardedValue(clone, ShardState(()), ArrayShape(PrimitiveType.U32, ())),)
