"""Roll along a sharded dimension: two slices of one array concatenated in exchanged order.

    concatenate(x[n-k:], x[:n-k])        every element moves up by k, the last k come round to the front

    n = 8 over 4 devices, k = 3     tiles [0 1] [2 3] [4 5] [6 7]
                                    rolled [5 6] [7 0] [1 2] [3 4]
    each tile is the end of one device's tile and the start of the next one's: two cyclic permutes of parts of a tile,
    one when k is a multiple of the tile, and a part that stays is not sent.

If the tiles do not divide evenly, the partitioning of concatenate is used.
"""

from __future__ import annotations

from partitioner.devices.device_lines import cyclic_pairs
from partitioner.partition.context import PartitionContext, ShardedValue
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs, SliceAttrs


@dataclass(frozen=True, slots=True)
class Roll:
    """Roll of ``source`` along ``dim``: result element i is source element (i - shift) mod n, 0 < shift < n."""

    source: HloInstruction
    dim: int
    shift: int


def match_roll(concatenate: HloInstruction) -> Roll | None:
    """Return the roll that a concatenate of two slices computes, or None."""
    (dim,) = concatenate.attrs_as(DimensionsAttrs).dimensions
    if concatenate.num_operands != 2:
        return None
    end, start = concatenate.operands
    if end.opcode is not Opcode.SLICE or start.opcode is not Opcode.SLICE:
        return None
    source = end.operand(0)
    size = source.dims[dim]
    shift = end.dims[dim]
    if source is not start.operand(0) or concatenate.dims != source.dims or not 0 < shift < size:
        return None
    if not _is_slice(end, dim, size - shift, size) or not _is_slice(start, dim, 0, size - shift):
        return None
    return Roll(source, dim, shift)


def _is_slice(part: HloInstruction, dim: int, begin: int, end: int) -> bool:
    """Return whether ``part`` is [begin, end) of dimension ``dim`` and all of the others."""
    attrs = part.attrs_as(SliceAttrs)
    sizes = part.operand(0).dims
    wanted = [(begin, end) if d == dim else (0, n) for d, n in enumerate(sizes)]
    found = list(zip(attrs.starts, attrs.limits, strict=True))
    return found == wanted and all(stride == 1 for stride in attrs.strides)


def partition_roll(
    context: PartitionContext, concatenate: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Permute parts of a tile cyclically. Returns None unless this is a roll along an evenly split dimension."""
    roll = match_roll(concatenate)
    if roll is None:
        return None
    value = context.value(roll.source)
    along = value.state.dims[roll.dim]
    if not along or value.state.partial or context.is_uneven(value, roll.dim):
        return None
    tile = value.hlo.dims[roll.dim]
    hops, rest = divmod(roll.shift, tile)
    # The first ``rest`` elements come from one device further back than the others.
    parts = [
        _from_behind(context, value, roll.dim, tile - rest, tile, hops + 1),
        _from_behind(context, value, roll.dim, 0, tile - rest, hops),
    ]
    found = [part for part in parts if part is not None]
    hlo = found[0] if len(found) == 1 else context.builder.concatenate(found, roll.dim)
    return (ShardedValue(hlo, value.state, concatenate.array_shape.without_layout()),)


def _from_behind(
    context: PartitionContext, value: ShardedValue, dim: int, begin: int, end: int, hops: int
) -> HloInstruction | None:
    """Return elements [begin, end) of the tile of the device ``hops`` places before this one, cyclically."""
    if begin == end:
        return None
    b = context.builder
    along = value.state.dims[dim]
    part = value.hlo
    if end - begin < part.dims[dim]:
        part = b.slice_along(part, dim, begin, end)
    if hops % context.axes.count(along) == 0:
        return part
    return b.collective_permute(part, cyclic_pairs(context.axes, along, hops))
