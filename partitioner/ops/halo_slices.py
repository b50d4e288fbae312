"""Slices, pads and concatenations along a sharded dimension: each device's result is a window of its operand.

    slice        result tile k = every stride-th of x[start + k*t'*stride, + (t' - 1)*stride + 1)
    pad          result tile k = x[k*t' - low, + t'), the padding value outside x (and between elements)
    concatenate  result tile k = main operand[k*t' - its start, + t'), over which every device writes what falls into
                 the tile of the other operands, which it has entirely

Here t' is the tile of the result.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.ops.halo import (
    HaloWindow,
    LocalWindow,
    Windows,
    exchange,
    plan_with_windows,
    sliding,
    trimmed,
)
from partitioner.ops.owned_slices import owned_window
from partitioner.ops.roll import partition_roll
from partitioner.ops.slicing import (
    is_window,
    joined_rule,
    main_part,
    padded_rule,
    slide_of_pad,
    slide_of_slice,
    untouched_by_pad,
    untouched_by_slice,
)
from partitioner.partition.candidates import OpPlan, best_plan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import emit_local, local_operands, problem_of, rule_for
from partitioner.partition.shard_state import ShardState
from partitioner.registry import partition
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, PadAttrs, SliceAttrs
from spmd.shape import PrimitiveType

_S32 = PrimitiveType.S32


# ---- slice
@partition(Opcode.SLICE)
def partition_slice(context: PartitionContext, slice_: HloInstruction) -> tuple[ShardedValue, ...]:
    """Exchange halos for windows first, then combine the owners' parts, then slice the dimensions that are
    not sharded.
    """
    rule = rule_for(slice_)
    plan = best_plan(problem_of(context, slice_, rule))
    windows = _slice_windows(context, slice_, plan)
    (local,) = local_operands(context, slice_, rule, plan)
    value = ShardedValue(local, plan.operands[0], slice_.operand(0).array_shape.without_layout())
    value = _exchanged(context, value, windows, None)
    owned = _owned_dims(slice_, plan.operands[0])
    hlo = _owners_part(context, slice_, value, owned) if owned else value.hlo
    hlo = _slice_the_rest(context, slice_, plan, hlo, owned)
    return (ShardedValue(hlo, plan.results[0], slice_.array_shape.without_layout()),)


def _slice_windows(context: PartitionContext, slice_: HloInstruction, plan: OpPlan) -> Windows:
    tiles = plan.results[0].local_dims(slice_.dims, context.axes)
    found: Windows = {}
    for d, axes in enumerate(plan.operands[0].dims):
        local = sliding(slide_of_slice(slice_, d), tiles[d]) if is_window(slice_, d) else None
        if axes and local is not None:
            found[0, d] = local[0]
    return found


def _owned_dims(slice_: HloInstruction, state: ShardState) -> tuple[int, ...]:
    """Return the sharded dimensions that are sliced but get no halo exchange."""
    untouched = untouched_by_slice(slice_)
    return tuple(
        d
        for d, axes in enumerate(state.dims)
        if axes and d not in untouched and not is_window(slice_, d)
    )


def _owners_part(
    context: PartitionContext, slice_: HloInstruction, value: ShardedValue, owned: tuple[int, ...]
) -> HloInstruction:
    b = context.builder
    attrs = slice_.attrs_as(SliceAttrs)
    window = tuple(slice_.dims[d] if d in owned else n for d, n in enumerate(value.hlo.dims))
    positions = [b.scalar(_S32, start if d in owned else 0) for d, start in enumerate(attrs.starts)]
    return owned_window(
        context, slice_.operand(0), value.hlo, value.state, positions, window, owned
    )


def _slice_the_rest(
    context: PartitionContext,
    slice_: HloInstruction,
    plan: OpPlan,
    x: HloInstruction,
    owned: tuple[int, ...],
) -> HloInstruction:
    """Slice the dimensions that are not sharded, and take every kth element of the exchanged windows."""
    attrs = slice_.attrs_as(SliceAttrs)
    starts, limits, strides = [0] * len(x.dims), list(x.dims), [1] * len(x.dims)
    for d, axes in enumerate(plan.operands[0].dims):
        if d not in owned:
            strides[d] = attrs.strides[d]
        if not axes:
            starts[d], limits[d] = attrs.starts[d], attrs.limits[d]
    if starts == [0] * len(x.dims) and limits == list(x.dims) and set(strides) <= {1}:
        return x
    return context.builder.slice(x, starts, limits, strides)


# ---- pad
@partition(Opcode.PAD)
def partition_pad(context: PartitionContext, pad: HloInstruction) -> tuple[ShardedValue, ...]:
    attrs = pad.attrs_as(PadAttrs)
    untouched = untouched_by_pad(pad)

    def local_windows(plan: OpPlan) -> list[LocalWindow | None]:
        tiles = plan.results[0].local_dims(pad.dims, context.axes)
        shards = plan.operands[0].shards(context.axes)
        found = [sliding(slide_of_pad(pad, d), tile) for d, tile in enumerate(tiles)]
        return [
            part and trimmed(part, size, count, results)
            for part, size, count, results in zip(
                found, pad.operand(0).dims, shards, pad.dims, strict=True
            )
        ]

    def windows_of(plan: OpPlan) -> Windows | None:
        found: Windows = {}
        for d, local in enumerate(local_windows(plan)):
            if not plan.operands[0].dims[d] or d in untouched:
                continue
            if local is None:
                return None
            found[0, d] = local[0]
        return found

    rule, plan, windows = plan_with_windows(
        context, pad, lambda windowed: padded_rule(pad, windowed=windowed), windows_of
    )
    local, fill = local_operands(context, pad, rule, plan)
    value = ShardedValue(local, plan.operands[0], pad.operand(0).array_shape.without_layout())
    value = _exchanged(context, value, windows, fill)
    low, high = list(attrs.low), list(attrs.high)
    for d, window in enumerate(local_windows(plan)):
        if (0, d) in windows and window is not None:
            low[d], high[d] = window[1].padding_low, window[1].padding_high
    if not any((*low, *high, *attrs.interior)):
        return (ShardedValue(value.hlo, plan.results[0], pad.array_shape.without_layout()),)
    rest = PadAttrs(tuple(low), tuple(high), attrs.interior)
    return emit_local(context, pad, plan, [value.hlo, fill], rest)


# ---- concatenate
@partition(Opcode.CONCATENATE)
def partition_concatenate(
    context: PartitionContext, concatenate: HloInstruction
) -> tuple[ShardedValue, ...]:
    rolled = partition_roll(context, concatenate)
    if rolled is not None:
        return rolled
    (joined,) = concatenate.attrs_as(DimensionsAttrs).dimensions
    main = main_part(concatenate)
    starts = _starts(concatenate, joined)

    def windows_of(plan: OpPlan) -> Windows:
        tile = plan.results[0].local_dims(concatenate.dims, context.axes)[joined]
        if main is None or not plan.results[0].dims[joined]:
            return {}
        return {(main, joined): HaloWindow(tile, -starts[main], tile)}

    rule, plan, windows = plan_with_windows(
        context,
        concatenate,
        lambda windowed: joined_rule(concatenate, windowed=windowed),
        windows_of,
    )
    operands = local_operands(context, concatenate, rule, plan)
    if not windows or main is None:
        return emit_local(context, concatenate, plan, operands)
    shape = concatenate.operand(main).array_shape.without_layout()
    value = ShardedValue(operands[main], plan.operands[main], shape)
    tile = exchange(context, value, joined, windows[main, joined], None)
    others = [(x, start) for x, start in zip(operands, starts, strict=True) if x is not value.hlo]
    offset = context.offset(plan.results[0], joined, concatenate.dims[joined])
    hlo = _written_over(context, tile, others, offset, joined)
    return (ShardedValue(hlo, plan.results[0], concatenate.array_shape.without_layout()),)


def _starts(concatenate: HloInstruction, joined: int) -> list[int]:
    """Return the start of each operand in the result."""
    starts, position = [], 0
    for operand in concatenate.operands:
        starts.append(position)
        position += operand.dims[joined]
    return starts


def _written_over(
    context: PartitionContext,
    tile: HloInstruction,
    parts: list[tuple[HloInstruction, int]],
    offset: HloInstruction,
    dim: int,
) -> HloInstruction:
    """Write each part at its global start over ``tile`` (elements from global position ``offset`` on).

    The tile is padded by the longest part, so that a part outside the tile is written into the padding.
    """
    if not parts:
        return tile
    b = context.builder
    margin = max(part.dims[dim] for part, _ in parts)
    margins = [margin if d == dim else 0 for d in range(len(tile.dims))]
    padded = b.pad(tile, b.scalar_like(tile, 0), margins, margins)
    for part, start in parts:
        starts = [b.scalar(_S32, 0)] * len(tile.dims)
        starts[dim] = b.subtract(b.scalar(_S32, margin + start), offset)
        padded = b.dynamic_update_slice(padded, part, starts)
    limits = [m + n for m, n in zip(margins, tile.dims, strict=True)]
    return b.slice(padded, margins, limits)


def _exchanged(
    context: PartitionContext, value: ShardedValue, windows: Windows, fill: HloInstruction | None
) -> ShardedValue:
    for (_, d), window in windows.items():
        value = replace(value, hlo=exchange(context, value, d, window, fill))
    return value
