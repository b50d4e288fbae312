"""Custom calls that carry shardings: constraints, result shardings, and the shape conversions of manual regions."""

from __future__ import annotations

from dataclasses import replace

from partitioner.annotations.manual_regions import (
    GSPMD_ENTRY,
    GSPMD_EXIT,
    SDY_ENTRY,
    SDY_EXIT,
    ShapeConversion,
    shape_conversion,
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
from partitioner.propagation.value_graph import ValueGraph, ValueShardings
from partitioner.registry import partition_target, propagate_target
from spmd.errors import ShardingError
from spmd.hlo import HloInstruction

SHAPE_CONVERSION_TARGETS = (SDY_ENTRY, SDY_EXIT, GSPMD_ENTRY, GSPMD_EXIT)


@propagate_target(*CONSTRAINT_TARGETS)
def propagate_constraint(graph: ValueGraph, call: HloInstruction) -> ValueShardings:
    """Add an identity whose result has the annotated sharding."""
    results = graph.new_shardings(call.shape, call.name)
    for operand, result in zip(graph.shardings(call.operand(0)), results, strict=True):
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


@propagate_target(*SHAPE_CONVERSION_TARGETS)
def propagate_shape_conversion(graph: ValueGraph, call: HloInstruction) -> ValueShardings:
    conversion = _conversion(graph, call)
    results = graph.new_shardings(call.shape, call.name)
    for position, (operand, result) in enumerate(zip(call.operands, results, strict=True)):
        source = graph.sharding(operand)
        if source is None or result is None:
            raise ShardingError(f"{call.name}: a manual region takes arrays only")
        if conversion.is_entry:
            graph.flow([(source,)], (result,), adds=conversion.axes)
        else:
            graph.flow([(source,)], (result,), removes=conversion.axes)
        graph.connect(
            shape_conversion_rule(graph, conversion, position), [source], [result], call.name
        )
        value = conversion.values[position]
        if conversion.is_entry:
            graph.constrain((result,), (value.free,), call.name)
        else:
            dims = tuple(p + f for p, f in zip(value.pinned, value.free.dims, strict=True))
            graph.constrain((result,), (replace(value.free, dims=dims),), call.name)
    return results


def shape_conversion_rule(
    graph: ValueGraph | PartitionContext, conversion: ShapeConversion, position: int
) -> OpShardingRule:
    pinned = conversion.values[position].pinned
    return conversion.rule(position, {axes: graph.axes.count(axes) for axes in pinned})


def _conversion(graph: ValueGraph | PartitionContext, call: HloInstruction) -> ShapeConversion:
    conversion = shape_conversion(call, graph.reader)
    if conversion is None:
        raise ShardingError(f"{call.name} is not an edge of a manual region")
    return conversion


@partition_target(*SHAPE_CONVERSION_TARGETS)
def partition_shape_conversion(
    context: PartitionContext, call: HloInstruction
) -> tuple[ShardedValue, ...]:
    """Bring each value into the state that the conversion requires. The same local array then represents the result."""
    conversion = _conversion(context, call)
    results = []
    for position, operand in enumerate(call.operands):
        value = conversion.values[position]
        rule = shape_conversion_rule(context, conversion, position)
        wanted = project(context.axes, rule, rule.results[0], context.wanted(call, position).dims)
        # Drop free axes that cut the local size unevenly: they are no tiling of the global size.
        assignment = legalize(context.axes, rule, merge(rule, empty_assignment(rule), wanted))
        source = context.reshard(
            context.value(operand), ShardState(tensor_dims(rule.operands[0], assignment))
        )
        shape = value.local_shape if conversion.is_entry else value.global_shape
        results.append(
            ShardedValue(source.hlo, ShardState(tensor_dims(rule.results[0], assignment)), shape)
        )
    return tuple(results)
