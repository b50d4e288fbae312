"""Tuples: propagation and partitioning treat a tuple as its leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.value_graph import ValueGraph, ValueShardings
from partitioner.registry import partition, propagate_op
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import TupleIndexAttrs
from spmd.shape import ArrayShape, PrimitiveType, Shape, TupleShape, as_tuple, leaves

#: Shape of a token (or an opaque value) if an array shape is required: a scalar.
TOKEN = ArrayShape(PrimitiveType.PRED, ())


def leaf_range(shape: Shape, index: int) -> slice:
    """Return the positions of element ``index`` of a tuple shape among its leaves."""
    counts = [sum(1 for _ in leaves(element)) for element in as_tuple(shape).elements]
    start = sum(counts[:index])
    return slice(start, start + counts[index])


@propagate_op(Opcode.TUPLE)
def propagate_tuple(graph: ValueGraph, instruction: HloInstruction) -> ValueShardings:
    return tuple(
        sharding for operand in instruction.operands for sharding in graph.shardings(operand)
    )


@propagate_op(Opcode.GET_TUPLE_ELEMENT)
def propagate_element(graph: ValueGraph, instruction: HloInstruction) -> ValueShardings:
    source = instruction.operand(0)
    return graph.shardings(source)[
        leaf_range(source.shape, instruction.attrs_as(TupleIndexAttrs).index)
    ]


@propagate_op(Opcode.OPT_BARRIER)
def propagate_barrier(graph: ValueGraph, instruction: HloInstruction) -> ValueShardings:
    return graph.shardings(instruction.operand(0))


@partition(Opcode.TUPLE)
def partition_tuple(
    context: PartitionContext, instruction: HloInstruction
) -> tuple[ShardedValue, ...]:
    return tuple(value for operand in instruction.operands for value in context.values(operand))


@partition(Opcode.GET_TUPLE_ELEMENT)
def partition_element(
    context: PartitionContext, instruction: HloInstruction
) -> tuple[ShardedValue, ...]:
    source = instruction.operand(0)
    return context.values(source)[
        leaf_range(source.shape, instruction.attrs_as(TupleIndexAttrs).index)
    ]


@partition(Opcode.OPT_BARRIER)
def partition_barrier(
    context: PartitionContext, instruction: HloInstruction
) -> tuple[ShardedValue, ...]:
    """Make one barrier over the local arrays; states stay as they are."""
    values = context.values(instruction.operand(0))
    b = context.builder
    packed = b.tuple([value.hlo for value in values])
    barrier = context.target.create(
        Opcode.OPT_BARRIER, packed.shape, [packed], name=instruction.name
    )
    return tuple(
        ShardedValue(b.get_tuple_element(barrier, i), value.state, value.shape)
        for i, value in enumerate(values)
    )


def pack(context: PartitionContext, values: Sequence[ShardedValue], shape: Shape) -> HloInstruction:
    """Return one local instruction of the (possibly nested) tuple ``shape`` whose leaves are ``values``."""
    return _pack(context, iter(values), shape)


def _pack(
    context: PartitionContext, values: Iterator[ShardedValue], shape: Shape
) -> HloInstruction:
    if not isinstance(shape, TupleShape):
        return next(values).hlo
    elements = [_pack(context, values, element) for element in shape.elements]
    return _taken_apart(elements) or context.builder.tuple(elements)


def _taken_apart(elements: Sequence[HloInstruction]) -> HloInstruction | None:
    """Return the instruction of which these are all elements, in order (a done op must name its start itself); else
    None.
    """
    for index, element in enumerate(elements):
        if (
            element.opcode is not Opcode.GET_TUPLE_ELEMENT
            or element.attrs_as(TupleIndexAttrs).index != index
            or element.operand(0) is not elements[0].operand(0)
        ):
            return None
    if not elements or len(as_tuple(elements[0].operand(0).shape).elements) != len(elements):
        return None
    return elements[0].operand(0)


def unpack(
    context: PartitionContext,
    instruction: HloInstruction,
    states: Sequence[ShardState],
    shape: Shape,
) -> tuple[ShardedValue, ...]:
    """Return the leaves of a local instruction whose global shape is ``shape``, in the given states."""
    return tuple(_unpack(context, instruction, iter(states), shape))


def _unpack(
    context: PartitionContext,
    instruction: HloInstruction,
    states: Iterator[ShardState],
    shape: Shape,
) -> Iterator[ShardedValue]:
    if isinstance(shape, TupleShape):
        for i, element in enumerate(shape.elements):
            yield from _unpack(
                context, context.builder.get_tuple_element(instruction, i), states, element
            )
    else:
        leaf = shape if isinstance(shape, ArrayShape) else TOKEN
        yield ShardedValue(instruction, next(states), leaf)


def local_shape(context: PartitionContext, states: Iterator[ShardState], shape: Shape) -> Shape:
    """Return the per-device ``shape`` with its leaves in the given states."""
    if isinstance(shape, TupleShape):
        return TupleShape(
            tuple(local_shape(context, states, element) for element in shape.elements)
        )
    state = next(states)
    return state.local_shape(shape, context.axes) if isinstance(shape, ArrayShape) else shape
