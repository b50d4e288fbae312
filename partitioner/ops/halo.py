"""Halo exchange: every device receives a window of a sharded dimension that overlaps its neighbours' tiles.

Device k of the S along a dimension wants elements [k*step + start, k*step + start + size) of the dimension and
holds [k*tile, (k+1)*tile). Relative to its own tile the window begins at k*(step - tile) + start, so over all devices
it extends at most ``left`` elements before and ``right`` elements after the tile:

    tile 4, window of 3 around each element (start -1, step 4, size 6)      left 1, right 1

        device 0  . 0 1 2 3 | 4            from device 1: its first element
        device 1  3 | 4 5 6 7 | 8          from device 0: its last, from device 2: its first
        device 2  7 | 8 9 10 11 .          positions outside the dimension take the fill value

Each neighbour's part is one collective-permute of exactly the elements needed from its tile. Devices at one end that
have no such neighbour send nothing. If halos are so wide that this costs more than one all-gather, the dimension is
gathered.

The number of pieces is bounded by the number of devices and their size by the arrays, whatever stride, dilation or
padding the text states: ``trimmed`` leaves the ends of windows that lie outside the dimension on every device to the
local op's own padding, and positions beyond the furthest device are one margin of fill values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from partitioner.devices.axes import Axes
from partitioner.devices.device_lines import shift_pairs
from partitioner.ops.owner import in_tile
from partitioner.partition.candidates import OpPlan, best_plan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import problem_of
from partitioner.partition.shard_state import tile_size
from partitioner.propagation.op_sharding_rule import OpShardingRule
from partitioner.reshard.cost import LATENCY_BYTES
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import WindowDimension
from spmd.shape import PrimitiveType

_S32 = PrimitiveType.S32


@dataclass(frozen=True, slots=True)
class HaloWindow:
    """Windows of all devices: device k's window is [k*step + start, k*step + start + size) of the dimension."""

    step: int
    start: int
    size: int


#: Windows that a plan needs, by (operand, dimension).
Windows: TypeAlias = "dict[tuple[int, int], HaloWindow]"


#: The elements a device needs, and the window that then slides over them.
LocalWindow: TypeAlias = tuple[HaloWindow, WindowDimension]


@dataclass(frozen=True, slots=True)
class HaloWidths:
    """Halo widths: the largest distances over all devices by which windows extend beyond tiles of ``tile`` elements."""

    tile: int
    left: int
    right: int


def halo_widths(window: HaloWindow, size: int, shards: int) -> HaloWidths:
    """Return the halo widths for a dimension of ``size`` elements split into ``shards``."""
    tile = tile_size(size, shards)
    drift = (window.step - tile) * (shards - 1)
    first, last = window.start + min(0, drift), window.start + max(0, drift)
    return HaloWidths(tile, max(0, -first), max(0, last + window.size - tile))


def exchange_cost(widths: HaloWidths, shards: int, line_bytes: float) -> float:
    """Return the cost of the exchange in bytes on the wire. ``line_bytes``: bytes of one element of the dimension.

    The nearest neighbours on both sides count as one collective: a halo of two thin edges is no reason to gather.
    """
    sent, collectives = 0.0, 1
    for halo in (widths.left, widths.right):
        for distance, width in _pieces(halo, widths.tile, shards):
            sent += width * line_bytes * (shards - distance) / shards
            collectives += distance > 1
    return LATENCY_BYTES * collectives + sent


def sliding(window: WindowDimension, tile: int) -> LocalWindow | None:
    """Return the elements that a device needs for a result tile of ``tile``, and its window over them.

    With base dilation b, positions count in a sequence in which every bth element is real. Returns None if windows of
    different devices begin at different offsets between two real elements.
    """
    dilation = window.base_dilation
    step = tile * window.stride
    if step % dilation:
        return None
    length = (tile - 1) * window.stride + window.dilated_size
    first = -(window.padding_low // dilation)
    lead = first * dilation + window.padding_low
    count = (length - 1 - lead) // dilation + 1
    if count <= 0:
        return None
    tail = length - lead - ((count - 1) * dilation + 1)
    local = replace(window, padding_low=lead, padding_high=tail)
    return HaloWindow(step // dilation, first, count), local


def trimmed(local: LocalWindow, size: int, shards: int, results: int) -> LocalWindow | None:
    """Return `local` without the elements that lie outside the dimension on every device.

    The dimension has `size` elements in `shards` tiles, the result `results` elements. The local window pads with the
    same values that lie outside the dimension, so its padding replaces what is cut off. At least one element
    stays. Returns None if the windows of two devices lie further apart than the arrays are long: large padding and a
    large stride say so, and the span of all windows would grow with these numbers.
    """
    halo, window = local
    if halo.step > 2 * (size + results):
        return None
    last = halo.start + (shards - 1) * halo.step
    low = min(max(0, -last), halo.size - 1)
    high = min(max(0, halo.start + halo.size - size), halo.size - 1 - low)
    padded = replace(
        window,
        padding_low=window.padding_low + low * window.base_dilation,
        padding_high=window.padding_high + high * window.base_dilation,
    )
    return HaloWindow(halo.step, halo.start + low, halo.size - low - high), padded


def plan_with_windows(
    context: PartitionContext,
    instruction: HloInstruction,
    make_rule: Callable[[bool], OpShardingRule],
    windows_of: Callable[[OpPlan], Windows | None],
) -> tuple[OpShardingRule, OpPlan, Windows]:
    """Return the best plan, its rule, and the windows that it needs.

    ``make_rule(windowed)``. ``windows_of(plan)``: None if the split is not possible; the rule without windowed factors
    then replaces it.
    """
    rule = make_rule(True)
    plan = best_plan(problem_of(context, instruction, rule))
    windows = windows_of(plan)
    if windows is not None:
        return rule, plan, windows
    rule = make_rule(False)
    return rule, best_plan(problem_of(context, instruction, rule)), {}


def exchange(
    context: PartitionContext,
    value: ShardedValue,
    dim: int,
    window: HaloWindow,
    fill: HloInstruction | None,
) -> HloInstruction:
    """Return this device's ``window`` of ``value`` along ``dim``; elements outside the dimension are ``fill`` (a
    scalar).

    Without ``fill`` they are unspecified. Other dimensions keep their tiles.
    """
    axes = value.state.dims[dim]
    shards = context.axes.count(axes)
    widths = halo_widths(window, value.shape.dims[dim], shards)
    tiles = _as_tiles(context, value, dim)
    gather = context.reshard_cost(tiles, tiles.state.with_dim(dim, ()))
    line_bytes = value.hlo.shape.byte_size / max(widths.tile, 1)
    # An empty tile has no edges to exchange.
    if widths.tile == 0 or gather < exchange_cost(widths, shards, line_bytes):
        return _from_gathered(context, tiles, dim, window, fill)
    # Only the last tile's padding lies both outside the dimension and inside a device's tile.
    padded = context.is_uneven(value, dim)
    joined = _with_neighbours(context, value.hlo, dim, axes, widths, None if padded else fill)
    found = _cut(context, joined, dim, axes, window, widths)
    if fill is None or not padded:
        return found
    return _filled(context, value, found, dim, window, fill)


def _as_tiles(context: PartitionContext, value: ShardedValue, dim: int) -> ShardedValue:
    """Return ``value`` with dimensions other than ``dim`` as large as their local sizes times the shard count.

    They may hold windows already; for gathering, these are tiles like any other.
    """
    tiles = [n * k for n, k in zip(value.hlo.dims, value.state.shards(context.axes), strict=True)]
    tiles[dim] = value.shape.dims[dim]
    return replace(value, shape=value.shape.with_dims(tuple(tiles)))


def _from_gathered(
    context: PartitionContext,
    value: ShardedValue,
    dim: int,
    window: HaloWindow,
    fill: HloInstruction | None,
) -> HloInstruction:
    """Gather the dimension, pad it to the span of all windows, and cut this device's window."""
    b = context.builder
    axes = value.state.dims[dim]
    gathered = context.reshard(value, value.state.with_dim(dim, ())).hlo
    end = (context.axes.count(axes) - 1) * window.step + window.start + window.size
    low, high = max(0, -window.start), max(0, end - gathered.dims[dim])
    padded = gathered
    if low or high:
        margins = [[n if d == dim else 0 for d in range(len(gathered.dims))] for n in (low, high)]
        padded = b.pad(gathered, b.scalar_like(gathered, 0) if fill is None else fill, *margins)
    starts = [b.scalar(_S32, 0)] * len(gathered.dims)
    starts[dim] = b.add(
        b.multiply(context.coordinate(axes), b.scalar(_S32, window.step)),
        b.scalar(_S32, window.start + low),
    )
    sizes = [window.size if d == dim else n for d, n in enumerate(gathered.dims)]
    return b.dynamic_slice(padded, starts, sizes)


def _with_neighbours(
    context: PartitionContext,
    local: HloInstruction,
    dim: int,
    axes: Axes,
    widths: HaloWidths,
    fill: HloInstruction | None,
) -> HloInstruction:
    """Return [left | tile | right] along ``dim``; the nearest neighbour's part is next to the tile.

    Parts of neighbours that do not exist are ``fill`` (zeros if it is None).
    """
    shards = context.axes.count(axes)
    parts: list[HloInstruction] = [local]
    for distance, width in _pieces(widths.left, widths.tile, shards):
        piece = _slice_dim(context, local, dim, widths.tile - width, widths.tile)
        parts.insert(0, _received(context, piece, axes, distance, fill))
    for distance, width in _pieces(widths.right, widths.tile, shards):
        piece = _slice_dim(context, local, dim, 0, width)
        parts.append(_received(context, piece, axes, -distance, fill))
    furthest = (shards - 1) * widths.tile
    if widths.left > furthest:
        parts.insert(0, _margin(context, local, dim, widths.left - furthest, fill))
    if widths.right > furthest:
        parts.append(_margin(context, local, dim, widths.right - furthest, fill))
    return context.builder.concatenate(parts, dim) if len(parts) > 1 else local


def _pieces(halo: int, tile: int, shards: int) -> list[tuple[int, int]]:
    """Return (distance, elements) of each neighbour that contributes to a halo of ``halo`` elements."""
    furthest = min(-(-halo // tile), shards - 1)
    return [
        (distance, min(tile, halo - (distance - 1) * tile)) for distance in range(1, furthest + 1)
    ]


def _margin(
    context: PartitionContext,
    local: HloInstruction,
    dim: int,
    width: int,
    fill: HloInstruction | None,
) -> HloInstruction:
    """Return `width` elements along `dim` that no device has: `fill`, or zeros without one."""
    b = context.builder
    value = b.scalar_like(local, 0) if fill is None else fill
    dims = tuple(width if d == dim else n for d, n in enumerate(local.dims))
    return b.broadcast_scalar(value, dims)


def _received(
    context: PartitionContext,
    piece: HloInstruction,
    axes: Axes,
    distance: int,
    fill: HloInstruction | None,
) -> HloInstruction:
    """Return ``piece`` of the device ``distance`` before this one along ``axes``; ``fill`` if there is none."""
    b = context.builder
    shards = context.axes.count(axes)
    if fill is None:
        return _shifted(context, piece, axes, distance)
    filling = b.broadcast_scalar(fill, piece.dims)
    limit = distance if distance > 0 else shards + distance
    exists = b.compare(
        context.coordinate(axes), b.scalar(_S32, limit), "GE" if distance > 0 else "LT"
    )
    received = _shifted(context, piece, axes, distance)
    return b.select(b.broadcast_scalar(exists, piece.dims), received, filling)


def _shifted(
    context: PartitionContext, piece: HloInstruction, axes: Axes, distance: int
) -> HloInstruction:
    """Send each device's ``piece`` to the device ``distance`` further along ``axes``; devices without a sender get
    zeros.
    """
    return context.builder.collective_permute(piece, shift_pairs(context.axes, axes, distance))


def _cut(
    context: PartitionContext,
    joined: HloInstruction,
    dim: int,
    axes: Axes,
    window: HaloWindow,
    widths: HaloWidths,
) -> HloInstruction:
    """Cut the window out of [left | tile | right]. If the step equals the tile, the offset is the same on all
    devices.
    """
    begin = widths.left + window.start
    if window.step == widths.tile:
        return _slice_dim(context, joined, dim, begin, begin + window.size)
    b = context.builder
    drift = b.multiply(context.coordinate(axes), b.scalar(_S32, window.step - widths.tile))
    starts = [b.scalar(_S32, 0)] * len(joined.dims)
    starts[dim] = b.add(drift, b.scalar(_S32, begin))
    sizes = [window.size if d == dim else n for d, n in enumerate(joined.dims)]
    return b.dynamic_slice(joined, starts, sizes)


def _filled(
    context: PartitionContext,
    value: ShardedValue,
    found: HloInstruction,
    dim: int,
    window: HaloWindow,
    fill: HloInstruction,
) -> HloInstruction:
    size = value.shape.dims[dim]
    axes = value.state.dims[dim]
    end = (context.axes.count(axes) - 1) * window.step + window.start + window.size
    if window.start >= 0 and end <= size:
        return found
    b = context.builder
    inside = in_tile(context, window_positions(context, axes, window), size)
    mask = b.broadcast(inside, (dim,), found.dims)
    return b.select(mask, found, b.broadcast_scalar(fill, found.dims))


def window_positions(context: PartitionContext, axes: Axes, window: HaloWindow) -> HloInstruction:
    """Return s32[size]: the position in the global dimension of each element of this device's window."""
    b = context.builder
    begin = b.add(
        b.multiply(context.coordinate(axes), b.scalar(_S32, window.step)),
        b.scalar(_S32, window.start),
    )
    dims = (window.size,)
    return b.add(b.iota(_S32, dims, 0), b.broadcast_scalar(begin, dims))


def _slice_dim(
    context: PartitionContext, x: HloInstruction, dim: int, start: int, limit: int
) -> HloInstruction:
    if (start, limit) == (0, x.dims[dim]):
        return x
    return context.builder.slice_along(x, dim, start, limit)
