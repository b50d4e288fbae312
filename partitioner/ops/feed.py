"""Infeed and outfeed: each device exchanges its own tile with the host.

An annotation says how the fed value is split; without one every device sends or receives the entire value. The
partitioned instruction keeps its sharding, by which the host divides and joins arrays (runtime/arrays/host_feed.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from partitioner.annotations.reader import AnnotationReader, Constraint, without_shardings
from partitioner.ops.tuple import local_shape, pack, unpack
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.driver import ValueSharding
from partitioner.propagation.value_graph import ValueGraph, ValueShardings
from partitioner.registry import partition, propagate_op
from spmd.analysis.outfeed_shape import with_global_shape
from spmd.errors import ShardingError
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import FeedAttrs
from spmd.shape import leaves
from spmd.sharding import HloSharding


@propagate_op(Opcode.INFEED)
def propagate_infeed(graph: ValueGraph, infeed: HloInstruction) -> ValueShardings:
    """Bind the sharding of the value that the host feeds: propagation does not choose it."""
    shardings = graph.new_shardings(infeed.shape, infeed.name)
    for sharding in shardings:
        if sharding is not None:
            replicated = Constraint.replicated(sharding.shape.rank)
            graph.constrain((sharding,), (replicated,), infeed.name)
    graph.annotate(infeed, shardings)
    return shardings


@partition(Opcode.INFEED)
def partition_infeed(context: PartitionContext, infeed: HloInstruction) -> tuple[ShardedValue, ...]:
    states = [context.wanted(infeed, leaf) for leaf, _ in enumerate(leaves(infeed.shape))]
    token = context.values(infeed.operand(0))[0].hlo
    clone = context.target.create(
        Opcode.INFEED,
        local_shape(context, iter(states), infeed.shape),
        [token],
        infeed.attrs,
        name=infeed.name,
        sharding=_of_tiles(context, states),
        annotations=without_shardings(infeed.annotations),
    )
    _after_earlier(clone)
    return unpack(context, clone, states, infeed.shape)


@propagate_op(Opcode.OUTFEED)
def propagate_outfeed(graph: ValueGraph, outfeed: HloInstruction) -> ValueShardings:
    """Bind the operand to the annotation, which describes it and not the result (a token)."""
    for sharding, constraint in zip(
        graph.shardings(outfeed.operand(0)), outfeed_constraints(graph.reader, outfeed), strict=True
    ):
        if sharding is not None and constraint is not None:
            given = ValueSharding.for_shape(sharding.shape, f"operand of {outfeed.name}")
            graph.constrain((given,), (constraint,), outfeed.name)
            graph.connect_same(sharding, given, outfeed.name)
    return graph.new_shardings(outfeed.shape, outfeed.name)


@partition(Opcode.OUTFEED)
def partition_outfeed(
    context: PartitionContext, outfeed: HloInstruction
) -> tuple[ShardedValue, ...]:
    fed, token = outfeed.operands
    values = [
        context.reshard(value, ShardState(constraint.dims) if constraint else _replicated(value))
        for value, constraint in zip(
            context.values(fed), outfeed_constraints(context.reader, outfeed), strict=True
        )
    ]
    operand = pack(context, values, fed.shape)
    clone = context.target.create(
        Opcode.OUTFEED,
        outfeed.shape,
        [operand, context.values(token)[0].hlo],
        replace(outfeed.attrs_as(FeedAttrs), outfeed_shape=operand.shape),
        name=outfeed.name,
        sharding=_of_tiles(context, [value.state for value in values]),
        annotations=with_global_shape(without_shardings(outfeed.annotations), fed.shape),
    )
    _after_earlier(clone)
    return unpack(context, clone, [ShardState(())], outfeed.shape)


def outfeed_constraints(
    reader: AnnotationReader, outfeed: HloInstruction
) -> tuple[Constraint | None, ...]:
    """Return a constraint per leaf of the operand. The last element of a tuple annotation may be the token's."""
    shapes = [shape for _, shape in leaves(outfeed.operand(0).shape)]
    stated = outfeed.sharding
    if stated is None:
        return (None,) * len(shapes)
    parts = stated.elements if stated.is_tuple else (stated,) * len(shapes)
    if len(parts) not in (len(shapes), len(shapes) + 1):
        raise ShardingError(f"{outfeed.name}: {len(parts)} shardings for {len(shapes)} values")
    return tuple(reader.of_gspmd(part, shape) for part, shape in zip(parts, shapes, strict=False))


def _after_earlier(feed: HloInstruction) -> None:
    """Make `feed` run after the previous feed, even if no token orders them: the host feeds in order."""
    assert feed.parent is not None
    before = [x for x in feed.parent.with_opcode(feed.opcode) if x is not feed]
    if before:
        before[-1].add_control_dependency_to(feed)


def _of_tiles(context: PartitionContext, states: Sequence[ShardState]) -> HloSharding | None:
    """Return the sharding by which the host divides and joins the fed values."""
    if not states:
        return None
    return HloSharding.tuple_of(tuple(state.sharding(context.axes) for state in states))


def _replicated(value: ShardedValue) -> ShardState:
    return ShardState.replicated(value.state.rank)
