"""While and conditional: computations are partitioned in place; carried values keep one state throughout."""

from __future__ import annotations

from collections.abc import Iterator

from partitioner.ops.tuple import leaf_range, pack, unpack
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.value_graph import ValueGraph, ValueShardings
from partitioner.registry import partition, propagate_op
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DynamicSliceAttrs, TupleIndexAttrs
from spmd.shape import ArrayShape, TupleShape, leaves


@propagate_op(Opcode.WHILE)
def propagate_while(graph: ValueGraph, loop: HloInstruction) -> ValueShardings:
    """Share shardings between the loop's result and its body's and condition's parameter. Connect them with those of
    the initial and the next state.
    """
    carried = graph.new_shardings(loop.shape, loop.name)
    for leaf, dim in scanned_dimensions(loop):
        sharding = carried[leaf]
        if sharding is not None:
            sharding.open[dim] = False
    graph.annotate(loop, carried)
    for initial, sharding in zip(graph.shardings(loop.operand(0)), carried, strict=True):
        graph.connect_same(initial, sharding, loop.name)
    following = graph.add_computation(loop.while_body, [carried])
    graph.add_computation(loop.while_condition, [carried])
    for last, sharding in zip(following, carried, strict=True):
        graph.connect_same(last, sharding, loop.name)
    return carried


def scanned_dimensions(loop: HloInstruction) -> Iterator[tuple[int, int]]:
    """Yield (leaf, dimension) of arrays that the loop reads slice by slice and never changes: the xs of a scan.

    If the array were split along that dimension, every iteration would have to fetch its slice from the owner. Unsplit,
    the array is gathered once before the loop.
    """
    body = loop.while_body
    (parameter,) = body.parameters
    if body.root.opcode is not Opcode.TUPLE or not isinstance(parameter.shape, TupleShape):
        return
    for element in parameter.users:
        if element.opcode is not Opcode.GET_TUPLE_ELEMENT:
            continue
        index = element.attrs_as(TupleIndexAttrs).index
        if not isinstance(element.shape, ArrayShape) or not _is_passed_on(
            body.root, index, element
        ):
            continue
        leaf = leaf_range(parameter.shape, index).start
        for user in element.users:
            if user.opcode is Opcode.DYNAMIC_SLICE and user.operand(0) is element:
                sizes = user.attrs_as(DynamicSliceAttrs).sizes
                for dim, (size, full_size) in enumerate(zip(sizes, element.dims, strict=True)):
                    if size < full_size:
                        yield leaf, dim


def _is_passed_on(root: HloInstruction, index: int, element: HloInstruction) -> bool:
    """Return whether the next iteration receives ``element`` unchanged."""
    after = root.operand(index)
    if after.opcode is Opcode.GET_TUPLE_ELEMENT and after.operand(0) is element.operand(0):
        return after.attrs_as(TupleIndexAttrs).index == index
    return after is element


@partition(Opcode.WHILE)
def partition_while(context: PartitionContext, loop: HloInstruction) -> tuple[ShardedValue, ...]:
    initial = context.values(loop.operand(0))
    states = [context.wanted(loop, leaf) for leaf in range(len(initial))]
    resharded = [
        context.reshard(value, state) for value, state in zip(initial, states, strict=True)
    ]
    operand = pack(context, resharded, loop.shape)
    condition = context.driver.partition_callee(loop.while_condition, states, [ShardState(())])
    body = context.driver.partition_callee(loop.while_body, states, states)
    result = context.target.create(
        Opcode.WHILE,
        operand.shape,
        [operand],
        loop.attrs,
        name=loop.name,
        called_computations=[condition, body],
        annotations=loop.annotations,
    )
    return unpack(context, result, states, loop.shape)


@propagate_op(Opcode.CONDITIONAL)
def propagate_conditional(graph: ValueGraph, conditional: HloInstruction) -> ValueShardings:
    """Tie each branch's parameter to its operand, and each branch's root to the result."""
    results = graph.new_shardings(conditional.shape, conditional.name)
    graph.annotate(conditional, results)
    graph.flow([graph.shardings(conditional.operand(0))], results)
    for branch, operand in zip(
        conditional.called_computations, conditional.operands[1:], strict=True
    ):
        roots = graph.add_computation(branch, [graph.shardings(operand)])
        for root, result in zip(roots, results, strict=True):
            graph.connect_same(root, result, conditional.name)
    return results


@partition(Opcode.CONDITIONAL)
def partition_conditional(
    context: PartitionContext, conditional: HloInstruction
) -> tuple[ShardedValue, ...]:
    selector = context.replicate(context.value(conditional.operand(0))).hlo
    results = [
        context.wanted(conditional, leaf) for leaf, _ in enumerate(leaves(conditional.shape))
    ]
    operands = [selector]
    branches = []
    for branch, operand in zip(
        conditional.called_computations, conditional.operands[1:], strict=True
    ):
        values = context.values(operand)
        operands.append(pack(context, values, operand.shape))
        branches.append(
            context.driver.partition_callee(branch, [value.state for value in values], results)
        )
    result = context.target.create(
        Opcode.CONDITIONAL,
        branches[0].root.shape,
        operands,
        conditional.attrs,
        name=conditional.name,
        called_computations=branches,
        annotations=conditional.annotations,
    )
    return unpack(context, result, results, conditional.shape)
