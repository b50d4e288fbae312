"""Parameters and outputs that are partial sums (``unreduced``) over some axes.

    ROOT d = f32[8,8] dot(a, b), sharding={unreduced}     each device returns its own product; the output is their sum

A parameter is reduced before its first use. A result that is partial over the output's axes stays partial. Any other
result is returned by the first device along those axes, and the other devices return zeros.
"""

from __future__ import annotations

from partitioner.devices.axes import Axes
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.custom_call import is_sharding_annotation
from spmd.shape import PrimitiveType, leaves


def with_partial(state: ShardState, axes: Axes) -> ShardState:
    """Return ``state`` of partial sums over ``axes``."""
    if not axes:
        return state
    return ShardState(state.dims, tuple(sorted(axes)), ReductionKind.SUM)


def _outputs_of(
    root: HloInstruction, instruction: HloInstruction, leaf: int, outputs: list[Axes]
) -> list[Axes]:
    """Return the entries of ``outputs`` that use a leaf; empty if the leaf has any other use."""
    while instruction is not root and len(instruction.users) == 1:
        (user,) = instruction.users
        if user is root and root.opcode is Opcode.TUPLE:
            producers = [operand for operand in root.operands for _ in leaves(operand.shape)]
            return [a for p, a in zip(producers, outputs, strict=True) if p is instruction]
        if not is_sharding_annotation(user):
            return []
        instruction, leaf = user, 0
    return [outputs[leaf]] if instruction is root and not root.users else []


def leaves_unreduced(
    context: PartitionContext,
    instruction: HloInstruction,
    leaf: int,
    value: ShardedValue,
    outputs: list[Axes],
) -> bool:
    """Return whether a leaf in the entry is used only by partial outputs, and is a partial sum over axes of each."""
    used_by = _outputs_of(context.source.root, instruction, leaf, outputs)
    state = value.state
    return (
        bool(used_by)
        and state.reduction is ReductionKind.SUM
        and all(any(axis in axes for axis in state.partial) for axes in used_by)
    )


def as_partial_sums(
    context: PartitionContext, value: ShardedValue, state: ShardState, axes: Axes
) -> ShardedValue:
    """Return ``value`` in ``state``, as partial sums over ``axes``."""
    partial: Axes = ()
    if value.state.reduction is ReductionKind.SUM:
        partial = tuple(axis for axis in value.state.partial if axis in axes)
    value = context.reshard(value, with_partial(state, partial))
    rest = tuple(sorted(axis for axis in axes if axis not in partial))
    if not rest:
        return value
    b, dims = context.builder, value.hlo.dims
    first = b.compare(context.coordinate(rest), b.scalar(PrimitiveType.S32, 0), "EQ")
    zeros = b.broadcast_scalar(b.scalar(value.shape.element_type, 0), dims)
    hlo = b.select(b.broadcast_scalar(first, dims), value.hlo, zeros)
    return ShardedValue(hlo, with_partial(state, axes), value.shape)
