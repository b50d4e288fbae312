"""Calls that a Python function partitions: jax.custom_partitioning.

The call's sharding rule propagates like any other. Its operands are brought to the shardings that the function
requires, and the module that the function returns for tiles replaces the call:

    r = f32[8,4] custom-call(x), custom_call_target="CustomSPMDPartitioning"    =>    the module's instructions
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from partitioner.annotations.reader import without_shardings
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.partition.unsharded_ops import replicated_states
from partitioner.registry import partition_target
from spmd.errors import ShardingError
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.host_functions import LocalFunction
from spmd.ops.attrs import CallAttrs, CollectiveAttrs, CollectivePermuteAttrs, ParameterAttrs
from spmd.ops.custom_call import CUSTOM_PARTITIONING, custom_call_target, partitioner_number
from spmd.passes.call_inliner import CallInliner
from spmd.shape import ArrayShape, as_array, leaves
from spmd.sharding import HloSharding


def open_without_partitioner(module: HloModule) -> None:
    """Replace calls that have no partition function by calls of their unpartitioned function."""
    for computation in module.computations:
        for call in list(computation.with_opcode(Opcode.CUSTOM_CALL)):
            if custom_call_target(call) != CUSTOM_PARTITIONING or not call.called_computations:
                continue
            if partitioner_number(call) is None:
                opened = computation.create(
                    Opcode.CALL,
                    call.shape,
                    call.operands,
                    CallAttrs(),
                    name=call.name,
                    called_computations=call.called_computations,
                    annotations=call.annotations,
                )
                computation.replace(call, opened)


@partition_target(CUSTOM_PARTITIONING)
def partition_by_function(
    context: PartitionContext, call: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Partition by the registered function. Returns None if there is none: the call's rule then partitions it."""
    number = partitioner_number(call)
    if number is None:
        return None
    if context.axes.num_devices == 1:
        return _inline_unpartitioned(context, call)
    shapes = tuple(as_array(leaf) for _, leaf in leaves(call.shape))
    wanted = [context.wanted(call, leaf) for leaf in range(len(shapes))]
    given = [_settled(context, operand) for operand in call.operands]
    local = context.module.host_functions.partitioners[number](
        [as_array(operand.shape) for operand in call.operands],
        [value.state.sharding(context.axes) for value in given],
        shapes,
        [state.sharding(context.axes) for state in wanted],
    )
    _check_counts(call, local, len(shapes))
    operands = [
        context.reshard(value, _state(context, call, sharding, value.shape)).hlo
        for value, sharding in zip(given, local.operands, strict=True)
    ]
    CallInliner().run(local.module)
    _assign_channels(context, local.module)
    results = _inlined(context, local.module.entry, operands)
    values = [
        ShardedValue(result, _state(context, call, sharding, shape), shape)
        for result, sharding, shape in zip(results, local.results, shapes, strict=True)
    ]
    return tuple(context.reshard(v, state) for v, state in zip(values, wanted, strict=True))


def _inline_unpartitioned(
    context: PartitionContext, call: HloInstruction
) -> tuple[ShardedValue, ...]:
    """Inline the unpartitioned function, on the only device."""
    operands = [context.values(operand)[0].hlo for operand in call.operands]
    results = _inlined(context, call.called_computations[0], operands)
    shapes = [as_array(leaf) for _, leaf in leaves(call.shape)]
    parts = zip(results, replicated_states(call.shape), shapes, strict=True)
    return tuple(ShardedValue(*part) for part in parts)


def _settled(context: PartitionContext, operand: HloInstruction) -> ShardedValue:
    """Return an operand as it is split, with its partial sums reduced."""
    (value,) = context.values(operand)
    return context.reshard(value, value.state.without_partial())


def _check_counts(call: HloInstruction, local: LocalFunction, results: int) -> None:
    found = len(local.operands), len(local.results)
    if found != (call.num_operands, results):
        raise ShardingError(
            f"{call.name}: its partition function gives shardings of {found[0]} operands and {found[1]} results, "
            f"there are {call.num_operands} and {results}"
        )


def _state(
    context: PartitionContext, call: HloInstruction, sharding: HloSharding, shape: ArrayShape
) -> ShardState:
    constraint = context.reader.of_gspmd(sharding, shape)
    if constraint is None or constraint.inexpressible is not None:
        raise ShardingError(
            f"{call.name}: its partition function asks for {sharding}, which the axes of the devices do not give"
        )
    return ShardState(constraint.dims)


def _assign_channels(context: PartitionContext, module: HloModule) -> None:
    """Give each collective of ``module`` a channel of its own among those of the partitioned program."""
    for x in module.all_instructions():
        if isinstance(x.attrs, (CollectiveAttrs, CollectivePermuteAttrs)):
            x.attrs = replace(x.attrs, channel_id=context.driver.scope.channel_id())


def _inlined(
    context: PartitionContext, computation: HloComputation, operands: Sequence[HloInstruction]
) -> list[HloInstruction]:
    """Return the results of `computation` on `operands`, its instructions copied into the target."""
    made: dict[HloInstruction, HloInstruction] = {}
    for x in computation.post_order():
        if x.opcode is Opcode.PARAMETER:
            made[x] = operands[x.attrs_as(ParameterAttrs).number]
            continue
        made[x] = context.target.create(
            x.opcode,
            x.shape,
            [made[operand] for operand in x.operands],
            x.attrs,
            name=x.name,
            called_computations=[context.copy_callee(c) for c in x.called_computations],
            annotations=without_shardings(x.annotations),
        )
    return [made[x] for x in computation.root.elements]
