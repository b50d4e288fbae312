"""Slices of sharded dimensions: the owner of the elements contributes them, the other devices add zeros.

    dynamic-slice          x sharded along a sliced dimension: each device slices what it has of [start, start + u) and
                           zeros elsewhere (a static slice of a small part too); the result is partial (SUM)
                           along the dimension's axes
    dynamic-update-slice   x sharded along an updated dimension: each device writes what falls into its tile;
                           the result is sharded as x is, nothing is communicated

The window may span tiles. A device pads its tile by u on both sides, so that every start, clamped, reads or writes
padding where the window is not its own. For u = 1 a predicate replaces the padding.
"""

from __future__ import annotations

from partitioner.ops.owner import as_position, clamped, from_offset, in_tile
from partitioner.partition.candidates import best_plan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import emit_local, local_operands, problem_of, rule_for
from partitioner.partition.shard_state import ShardState
from partitioner.registry import partition
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.shape import PrimitiveType


@partition(Opcode.DYNAMIC_SLICE)
def partition_dynamic_slice(
    context: PartitionContext, slice_: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Slice on the owner and sum. Declines (None) the old form with one index vector."""
    if slice_.num_operands != slice_.operand(0).array_shape.rank + 1:
        return None
    rule = rule_for(slice_)
    plan = best_plan(problem_of(context, slice_, rule))
    state = plan.operands[0]
    local, *starts = local_operands(context, slice_, rule, plan)
    split = _split_dims(state, slice_.dims, slice_.operand(0).dims)
    if not split:
        return emit_local(context, slice_, plan, [local, *starts])
    positions = [_start(context, slice_, d, start) for d, start in enumerate(starts)]
    window = plan.results[0].local_dims(slice_.dims, context.axes)
    hlo = owned_window(context, slice_.operand(0), local, state, positions, window, split)
    return (ShardedValue(hlo, plan.results[0], slice_.array_shape.without_layout()),)


@partition(Opcode.DYNAMIC_UPDATE_SLICE)
def partition_dynamic_update_slice(
    context: PartitionContext, update: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Write on the owner. Declines (None) the old form with one index vector."""
    if update.num_operands != update.array_shape.rank + 2:
        return None
    rule = rule_for(update)
    plan = best_plan(problem_of(context, update, rule))
    state = plan.operands[0]
    local, part, *starts = local_operands(context, update, rule, plan)
    split = _split_dims(state, update.operand(1).dims, update.dims)
    if not split:
        return emit_local(context, update, plan, [local, part, *starts])
    positions = [
        clamped(context, as_position(context, start), update.dims[d] - update.operand(1).dims[d])
        for d, start in enumerate(starts)
    ]
    write = _write_one if all(part.dims[d] == 1 for d in split) else _write_across
    hlo = write(context, update, local, state, part, positions, split)
    return (ShardedValue(hlo, state, update.array_shape.without_layout()),)


def _split_dims(
    state: ShardState, part: tuple[int, ...], full_dims: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the sharded dimensions of which only a part is taken."""
    return tuple(d for d, axes in enumerate(state.dims) if axes and part[d] != full_dims[d])


def _start(
    context: PartitionContext, slice_: HloInstruction, dim: int, start: HloInstruction
) -> HloInstruction:
    highest = slice_.operand(0).dims[dim] - slice_.dims[dim]
    return clamped(context, as_position(context, start), highest)


def owned_window(
    context: PartitionContext,
    global_array: HloInstruction,
    local: HloInstruction,
    state: ShardState,
    positions: list[HloInstruction],
    window: tuple[int, ...],
    split: tuple[int, ...],
) -> HloInstruction:
    """Return ``window`` of the global array at ``positions`` (global, clamped): own elements, zeros for those of
    others.

    ``local`` is this device's tile of ``global_array``. Along dimensions not in ``split`` positions are local already.
    """
    b = context.builder
    zero = b.scalar_like(local, 0)
    if all(window[d] == 1 for d in split):
        starts, inside = _local_starts(context, global_array, local, state, positions, split)
        found = b.dynamic_slice(local, starts, window)
        mask = b.broadcast_scalar(inside, found.dims)
        return b.select(mask, found, b.broadcast_scalar(zero, found.dims))
    margin = [window[d] if d in split else 0 for d in range(len(window))]
    padded = b.pad(local, zero, margin, margin)
    return b.dynamic_slice(
        padded, _padded_starts(context, global_array, state, positions, margin, split), window
    )


def _write_one(
    context: PartitionContext,
    global_array: HloInstruction,
    local: HloInstruction,
    state: ShardState,
    part: HloInstruction,
    positions: list[HloInstruction],
    split: tuple[int, ...],
) -> HloInstruction:
    """Write the update on the owner; the other devices write back the current elements."""
    b = context.builder
    starts, inside = _local_starts(context, global_array, local, state, positions, split)
    present = b.dynamic_slice(local, starts, part.dims)
    new = b.select(b.broadcast_scalar(inside, part.dims), part, present)
    return b.dynamic_update_slice(local, new, starts)


def _write_across(
    context: PartitionContext,
    global_array: HloInstruction,
    local: HloInstruction,
    state: ShardState,
    part: HloInstruction,
    positions: list[HloInstruction],
    split: tuple[int, ...],
) -> HloInstruction:
    """Write into the padded tile and cut the padding off again."""
    b = context.builder
    margin = [part.dims[d] if d in split else 0 for d in range(len(part.dims))]
    padded = b.pad(local, b.scalar_like(local, 0), margin, margin)
    starts = _padded_starts(context, global_array, state, positions, margin, split)
    written = b.dynamic_update_slice(padded, part, starts)
    limits = [m + n for m, n in zip(margin, local.dims, strict=True)]
    return b.slice(written, margin, limits)


def _local_starts(
    context: PartitionContext,
    global_array: HloInstruction,
    local: HloInstruction,
    state: ShardState,
    positions: list[HloInstruction],
    split: tuple[int, ...],
) -> tuple[list[HloInstruction], HloInstruction]:
    """Return the positions in this tile, and whether the element they name lies in it."""
    starts = list(positions)
    inside: HloInstruction | None = None
    for d in split:
        starts[d] = from_offset(context, positions[d], state, d, global_array.dims[d])
        here = in_tile(context, starts[d], local.dims[d])
        inside = here if inside is None else context.builder.logical_and(inside, here)
    assert inside is not None
    return starts, inside


def _padded_starts(
    context: PartitionContext,
    global_array: HloInstruction,
    state: ShardState,
    positions: list[HloInstruction],
    margin: list[int],
    split: tuple[int, ...],
) -> list[HloInstruction]:
    """Return positions in the tile padded by ``margin``; those before or after it are clamped into the padding."""
    b = context.builder
    starts = list(positions)
    for d in split:
        local = from_offset(context, positions[d], state, d, global_array.dims[d])
        starts[d] = b.add(local, b.scalar(PrimitiveType.S32, margin[d]))
    return starts
