"""Custom calls that carry shardings: constraints, result shardings, and the boundaries of manual regions."""

from __future__ import annotations

from dataclasses import replace

from partitioner.annotations.manual_regions import (
    GSPMD_ENTRY,
    GSPMD_EXIT,
    SDY_ENTRY,
    SDY_EXIT,
    ManualBoundary,
    manual_boundary,
)
from partitioner.annotations.reader import CONSTRAINT_TARGETS
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.op_sharding_rule import OpShardingRule
from partitioner.propagation.projection import (
    empty_assignment,
    legalize,
    merge,
    project,
    tensor_dims,
)
from partitioner.propagation.value_graph import SlotGraph, Slots
from partitioner.registry import partition_target, propagate_target
from spmd.errors import ShardingError
from spmd.hlo import HloInstruction

BOUNDARY_TARGETS = (SDY_ENTRY, SDY_EXIT, GSPMD_ENTRY, GSPMD_EXIT)


@propagate_target(*CONSTRAINT_TARGETS)
def propagate_constraint(graph: SlotGraph, call: HloInstruction) -> Slots:
    """Add an identity whose result has the annotated sharding."""
    results = graph.new_slots(call.shape, call.name)
    for operand, result in zip(graph.slots(call.operand(0)), results, strict=True):
        graph.connect_same(operand, result, call.name)
    graph.annotate(call, results)
    return results


@partition_target(*CONSTRAINT_TARGETS)
def partition_constraint(
    context: PartitionContext, call: HloInstruction
) -> tuple[ShardedValue, ...]:
    """Bring the operand into the annotated state; the call itself disappears."""
    return tuple(
        context.reshard(value, context.wanted(call, leaf))
        for leaf, value in enumerate(context.values(call.operand(0)))
    )


@propagate_target(*BOUNDARY_TARGETS)
def propagate_boundary(graph: SlotGraph, call: HloInstruction) -> Slots:
    boundary = _boundary(graph, call)
    results = graph.new_slots(call.shape, call.name)
    for position, (operand, result) in enumerate(zip(call.operands, results, strict=True)):
        source = graph.slot(operand)
        if source is None or result is None:
            raise ShardingError(f"{call.name}: a manual region takes arrays only")
        if boundary.is_entry:
            graph.flow([(source,)], (result,), adds=boundary.axes)
        else:
            graph.flow([(source,)], (result,), removes=boundary.axes)
        graph.connect(boundary_rule(graph, boundary, position), [source], [result], call.name)
        value = boundary.values[position]
        if boundary.is_entry:
            graph.constrain((result,), (value.free,), call.name)
        else:
            whole = tuple(p + f for p, f in zip(value.pinned, value.free.dims, strict=True))
            graph.constrain((result,), (replace(value.free, dims=whole),), call.name)
    return results


def boundary_rule(
    graph: SlotGraph | PartitionContext, boundary: ManualBoundary, position: int
) -> OpShardingRule:
    pinned = boundary.values[position].pinned
    return boundary.rule(position, {axes: graph.axes.count(axes) for axes in pinned})


def _boundary(graph: SlotGraph | PartitionContext, call: HloInstruction) -> ManualBoundary:
    boundary = manual_boundary(call, graph.reader)
    if boundary is None:
        raise ShardingError(f"{call.name} is no edge of a manual region")
    return boundary


@partition_target(*BOUNDARY_TARGETS)
def partition_boundary(context: PartitionContext, call: HloInstruction) -> tuple[ShardedValue, ...]:
    """Bring each value into the state that the boundary requires. The same local array then represents the
    other side.
    """
    boundary = _boundary(context, call)
    results = []
    for position, operand in enumerate(call.operands):
        value = boundary.values[position]
        rule = boundary_rule(context, boundary, position)
        wanted = project(context.axes, rule, rule.results[0], context.wanted(call, position).dims)
        # Drop free axes that cut the local size unevenly: they are no tiling of the global size.
        assignment = legalize(context.axes, rule, merge(rule, empty_assignment(rule), wanted))
        source = context.reshard(
            context.value(operand), ShardState(tensor_dims(rule.operands[0], assignment))
        )
        shape = value.local_shape if boundary.is_entry else value.global_shape
        results.append(
            ShardedValue(source.hlo, ShardState(tensor_dims(rule.results[0], assignment)), shape)
        )
    return tuple(results)
