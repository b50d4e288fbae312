"""Operations without operands: any split of the result is free.

    iota      -> [i, j]     each device counts from its own offset
    constant  -> [i, j]     equal elements: made at the local size; others: sliced out of the global array

A factor of the result alone (elementwise.all_dimensions_pass) may be split in any way at no cost.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.registry import REMATERIALIZERS, partition
from partitioner.reshard.cost import LOCAL_COPY
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.literal import Literal
from spmd.ops.attrs import ConstantAttrs, IotaAttrs
from spmd.shape import ArrayShape, PrimitiveType


@partition(Opcode.IOTA)
def partition_iota(context: PartitionContext, iota: HloInstruction) -> tuple[ShardedValue, ...]:
    return (make_iota(context, iota, context.wanted(iota)),)


def make_iota(context: PartitionContext, iota: HloInstruction, state: ShardState) -> ShardedValue:
    """Add the offset of this device's tile to a local count, in integers: small floats cannot represent large
    counts.
    """
    shape = iota.array_shape.without_layout()
    local = state.local_shape(shape, context.axes)
    dim = iota.attrs_as(IotaAttrs).dimension
    b = context.builder
    if not state.dims[dim]:
        return ShardedValue(b.iota(shape.element_type, local.dims, dim), state, shape, iota)
    exact = shape.element_type if shape.element_type.is_integer else PrimitiveType.S32
    offset = b.convert(context.offset(state, dim, shape.dims[dim]), exact)
    hlo = b.add(b.iota(exact, local.dims, dim), b.broadcast_scalar(offset, local.dims))
    if exact is not shape.element_type:
        hlo = b.convert(hlo, shape.element_type)
    return ShardedValue(hlo, state, shape, iota)


@partition(Opcode.CONSTANT)
def partition_constant(
    context: PartitionContext, constant: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Make the local part of a constant. Declines (None) tuple constants. An elided constant has no value and stays
    replicated.
    """
    if not isinstance(constant.shape, ArrayShape):
        return None
    return (make_constant(context, constant, context.wanted(constant)),)


def make_constant(
    context: PartitionContext, constant: HloInstruction, state: ShardState
) -> ShardedValue:
    shape = constant.array_shape.without_layout()
    literal = constant.attrs_as(ConstantAttrs).literal
    if literal is not None and shape.rank and _is_splat(literal):
        value = literal.value().flat[0]
        hlo = context.builder.full(state.local_shape(shape, context.axes), value)
        return ShardedValue(hlo, state, shape, constant)
    hlo = context.builder.create(
        Opcode.CONSTANT, (), ConstantAttrs(literal), shape=shape, name=constant.name
    )
    replicated = ShardedValue(hlo, ShardState.replicated(shape.rank), shape)
    return replace(context.reshard(replicated, state), producer=constant)


def local_bytes_cost(
    context: PartitionContext, instruction: HloInstruction, state: ShardState
) -> float:
    """Return the cost of writing the tile; nothing is communicated."""
    return LOCAL_COPY * state.local_shape(instruction.array_shape, context.axes).byte_size


REMATERIALIZERS.add(Opcode.IOTA, (local_bytes_cost, make_iota))
REMATERIALIZERS.add(Opcode.CONSTANT, (local_bytes_cost, make_constant))


def _is_splat(literal: Literal) -> bool:
    """Return whether all elements have the same bits (so -0.0 differs from 0.0, and a nan equals itself)."""
    array = literal.value()
    if array.size == 0:
        return False
    rows = array.reshape(-1, 1).view("u1").reshape(array.size, -1)
    return bool((rows == rows[0]).all())
