"""Slices, pads and concatenations along a sharded dimension: each device's result is a window of its operand.

slice        result tile k = x[start + k*t', + t')
pad          result tile k = x[k*t' - low, + t'), the padding value outside x
concatenate  result tile k = the part of each operand that falls into [k*t', + t'), chosen by position;
             the main operand is sharded, the others are whole on every device
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.candidates import OpPlan
from partitioner.context import PartitionContext, ShardedValue
from partitioner.generic import emit_local, local_operands
from partitioner.ops.halo import (
    HaloWindow,
    Windows,
    exchange,
    plan_with_windows,
    window_positions,
)
from partitioner.ops.owned_slices import owned_window
from partitioner.ops.slicing import (
    is_window,
    joined_rule,
    local_slice_attrs,
    main_part,
    padded_rule,
    part_rule,
    untouched_by_pad,
)
from partitioner.registry import partition
from partitioner.state import ShardState
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, PadAttrs, SliceAttrs
from spmd.shape import PrimitiveType

_S32 = PrimitiveType.S32


# ---- slice
@partition(Opcode.SLICE)
def partition_slice(context: PartitionContext, slice_: HloInstruction) -> tuple[ShardedValue, ...]:
    """Windows with halos first, then what owners give, then what every device can slice alone."""
    attrs = slice_.attrs_as(SliceAttrs)

    def windows_of(plan: OpPlan) -> Windows:
        tiles = plan.results[0].local_dims(slice_.dims, context.axes)
        return {
            (0, d): HaloWindow(tiles[d], attrs.starts[d], tiles[d])
            for d, axes in enumerate(plan.operands[0].dims)
            if axes and is_window(slice_, d)
        }

    rule, plan, windows = plan_with_windows(
        context, slice_, lambda windowed: part_rule(slice_, windowed=windowed), windows_of
    )
    (local,) = local_operands(context, slice_, rule, plan)
    value = ShardedValue(local, plan.operands[0], slice_.operand(0).array_shape.without_layout())
    value = _exchanged(context, value, windows, None)
    owned = _owned_dims(slice_, plan.operands[0], windows)
    hlo = _owners_part(context, slice_, value, owned) if owned else value.hlo
    done = (*owned, *(d for _, d in windows))
    hlo = _slice_the_rest(context, slice_, hlo, plan.results[0], done)
    return (ShardedValue(hlo, plan.results[0], slice_.array_shape.without_layout()),)


def _owned_dims(slice_: HloInstruction, state: ShardState, windows: Windows) -> tuple[int, ...]:
    """Sharded dimensions of which a part is taken that no halo gives."""
    attrs = slice_.attrs_as(SliceAttrs)
    return tuple(
        d
        for d, axes in enumerate(state.dims)
        if axes
        and (0, d) not in windows
        and attrs.strides[d] == 1
        and slice_.dims[d] != slice_.operand(0).dims[d]
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
    x: HloInstruction,
    state: ShardState,
    done: tuple[int, ...],
) -> HloInstruction:
    """Slice the dimensions not in ``done`` as every device can."""
    result = state.local_shape(slice_.array_shape, context.axes)
    local = local_slice_attrs(slice_, result)
    starts, limits, strides = list(local.starts), list(local.limits), list(local.strides)
    for d in done:
        starts[d], limits[d], strides[d] = 0, result.dims[d], 1
    if x.dims == result.dims:
        return x
    return context.builder.slice(x, starts, limits, strides)


# ---- pad
@partition(Opcode.PAD)
def partition_pad(context: PartitionContext, pad: HloInstruction) -> tuple[ShardedValue, ...]:
    attrs = pad.attrs_as(PadAttrs)
    untouched = untouched_by_pad(pad)

    def windows_of(plan: OpPlan) -> Windows:
        tiles = plan.results[0].local_dims(pad.dims, context.axes)
        return {
            (0, d): HaloWindow(tiles[d], -attrs.low[d], tiles[d])
            for d, axes in enumerate(plan.operands[0].dims)
            if axes and d not in untouched
        }

    rule, plan, windows = plan_with_windows(
        context, pad, lambda windowed: padded_rule(pad, windowed=windowed), windows_of
    )
    local, fill = local_operands(context, pad, rule, plan)
    value = ShardedValue(local, plan.operands[0], pad.operand(0).array_shape.without_layout())
    value = _exchanged(context, value, windows, fill)
    done = [d for _, d in windows]
    low = tuple(0 if d in done else n for d, n in enumerate(attrs.low))
    high = tuple(0 if d in done else n for d, n in enumerate(attrs.high))
    if not any((*low, *high, *attrs.interior)):
        return (ShardedValue(value.hlo, plan.results[0], pad.array_shape.without_layout()),)
    rest = PadAttrs(low, high, attrs.interior)
    return emit_local(context, pad, plan, [value.hlo, fill], rest)


# ---- concatenate
@partition(Opcode.CONCATENATE)
def partition_concatenate(
    context: PartitionContext, concatenate: HloInstruction
) -> tuple[ShardedValue, ...]:
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
    window = windows[main, joined]
    shape = concatenate.operand(main).array_shape.without_layout()
    value = ShardedValue(operands[main], plan.operands[main], shape)
    parts = [
        exchange(context, value, joined, window, None)
        if i == main
        else _window_of_whole(context, concatenate, plan, operand, joined, starts[i])
        for i, operand in enumerate(operands)
    ]
    hlo = _chosen_by_position(context, plan.results[0], parts, starts, joined)
    return (ShardedValue(hlo, plan.results[0], concatenate.array_shape.without_layout()),)


def _starts(concatenate: HloInstruction, joined: int) -> list[int]:
    """Where each operand begins in the result."""
    starts, position = [], 0
    for operand in concatenate.operands:
        starts.append(position)
        position += operand.dims[joined]
    return starts


def _window_of_whole(
    context: PartitionContext,
    concatenate: HloInstruction,
    plan: OpPlan,
    operand: HloInstruction,
    joined: int,
    start: int,
) -> HloInstruction:
    """What of an operand that is whole here falls into this device's tile of the result; unspecified elsewhere."""
    b = context.builder
    state = plan.results[0]
    tile = state.local_dims(concatenate.dims, context.axes)[joined]
    margin = [tile if d == joined else 0 for d in range(len(operand.dims))]
    padded = b.pad(operand, b.scalar_like(operand, 0), margin, margin)
    offset = context.offset(state, joined, concatenate.dims[joined])
    starts = [b.scalar(_S32, 0)] * len(operand.dims)
    starts[joined] = b.add(offset, b.scalar(_S32, tile - start))
    sizes = [tile if d == joined else n for d, n in enumerate(operand.dims)]
    return b.dynamic_slice(padded, starts, sizes)


def _chosen_by_position(
    context: PartitionContext,
    state: ShardState,
    parts: list[HloInstruction],
    starts: list[int],
    joined: int,
) -> HloInstruction:
    """Element at position p of the result: from the last operand that starts at or before p."""
    b = context.builder
    dims = parts[0].dims
    tile = HaloWindow(dims[joined], 0, dims[joined])
    position = window_positions(context, state.dims[joined], tile)
    result = parts[0]
    for part, start in zip(parts[1:], starts[1:], strict=True):
        begins = b.broadcast_scalar(b.scalar(_S32, start), position.dims)
        mask = b.broadcast(b.compare(position, begins, "GE"), (joined,), dims)
        result = b.select(mask, part, result)
    return result


def _exchanged(
    context: PartitionContext, value: ShardedValue, windows: Windows, fill: HloInstruction | None
) -> ShardedValue:
    for (_, d), window in windows.items():
        value = replace(value, hlo=exchange(context, value, d, window, fill))
    return value
