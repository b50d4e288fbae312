"""Index arithmetic of sharded dimensions: global positions relative to each device's tile.

A device holds elements [offset, offset + tile) of a dimension. Global position p is local position p - offset.
Positions outside the tile belong to other devices, which contribute them.
"""

from __future__ import annotations

from partitioner.partition.context import PartitionContext
from partitioner.partition.shard_state import ShardState
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.shape import PrimitiveType

_S32_MAX = 2**31 - 1
_S32 = PrimitiveType.S32


def owner_sum(element_type: PrimitiveType) -> ReductionKind:
    """Return the reduction that combines one device's value with the zeros of the others."""
    return ReductionKind.OR if element_type is PrimitiveType.PRED else ReductionKind.SUM


def as_position(context: PartitionContext, index: HloInstruction) -> HloInstruction:
    """Return ``index`` (any integer type) as s32, saturating: sizes are below 2**31, so out-of-range indices stay out
    of range.
    """
    b = context.builder
    kind = index.array_shape.element_type
    if kind is _S32:
        return index
    if kind.bits >= 32:
        index = b.minimum(index, b.broadcast_scalar(b.scalar(kind, _S32_MAX), index.dims))
    if kind is PrimitiveType.S64:
        index = b.maximum(index, b.broadcast_scalar(b.scalar(kind, -_S32_MAX), index.dims))
    return b.convert(index, _S32)


def clamped(context: PartitionContext, position: HloInstruction, highest: int) -> HloInstruction:
    """Clamp ``position`` (s32) to [0, highest], as dynamic slices and gathers do."""
    b = context.builder
    return b.clamp(b.scalar(_S32, 0), position, b.scalar(_S32, highest))


def from_offset(
    context: PartitionContext, position: HloInstruction, state: ShardState, dim: int, size: int
) -> HloInstruction:
    """Return global positions (s32, any rank) in dimension ``dim`` of global ``size`` as positions in this device's
    tile.
    """
    b = context.builder
    offset = context.offset(state, dim, size)
    return b.subtract(position, b.broadcast_scalar(offset, position.dims))


def in_tile(context: PartitionContext, position: HloInstruction, tile: int) -> HloInstruction:
    """Return a pred array of the shape of ``position``: 0 <= position < tile."""
    b = context.builder
    low = b.broadcast_scalar(b.scalar(_S32, 0), position.dims)
    high = b.broadcast_scalar(b.scalar(_S32, tile), position.dims)
    return b.logical_and(b.compare(position, low, "GE"), b.compare(position, high, "LT"))
