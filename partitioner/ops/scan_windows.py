"""Reduce-window over all elements so far, or all from an element on (jnp.cumsum), along a sharded dimension.

    x [i, s] split along s   local scan of the tile  ->  its total [i, 1]  ->  gather the totals [i, shards]
                             result = local scan (+) the reduction of the totals of the tiles before

Each device does the work of its own elements and sends one of each row, where a halo would be all elements before.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.ops.reduce import is_trivial, window_rule
from partitioner.partition.candidates import best_plan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import emit_local, local_operands, problem_of
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.literal import Literal
from spmd.ops.attrs import ConstantAttrs, WindowAttrs
from spmd.ops.reduction import OPERATION, identity_value, reduction_kind, through_annotations
from spmd.ops.window import Window, WindowDimension


def partition_scan(
    context: PartitionContext, reduce: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Scan each tile and add what the tiles before hold. Returns None unless this is a scan along a split dimension."""
    dim, kind = _scanned(reduce), _plain_kind(reduce)
    if dim is None or kind is None or 0 in reduce.dims:
        return None
    rule = window_rule(reduce)
    plan = best_plan(problem_of(context, reduce, rule))
    state = plan.operands[0]
    if not state.dims[dim] or plan.results[0] != state:
        return None
    _, init = local_operands(context, reduce, rule, plan)
    x = context.reshard(context.value(reduce.operand(0)), state)
    tile = context.mask_padding(x, (dim,), identity_value(kind, x.shape.element_type))
    window = reduce.attrs_as(WindowAttrs).window.dims
    is_forward = window[dim].padding_low > 0
    scan = _scan(tile.dims[dim], is_forward=is_forward)
    local_window = tuple(scan if d == dim else w for d, w in enumerate(window))
    attrs = WindowAttrs(Window(local_window))
    (local,) = emit_local(context, reduce, plan, [tile, init], attrs)
    before = _before(context, local, dim, kind, is_forward=is_forward)
    b = context.builder
    others = [d for d in range(len(tile.dims)) if d != dim]
    hlo = b.binary(OPERATION[kind], local.hlo, b.broadcast(before, others, tile.dims))
    return (replace(local, hlo=hlo),)


def _scanned(reduce: HloInstruction) -> int | None:
    """Return the one dimension whose windows are all elements up to the result's, or all from it on; else None."""
    dims = reduce.attrs_as(WindowAttrs).window.dims
    moving = [d for d, w in enumerate(dims) if not is_trivial(w)]
    if len(moving) != 1 or reduce.num_operands != 2:
        return None
    (dim,) = moving
    size = reduce.operand(0).dims[dim]
    scans = [_scan(size, is_forward=is_forward) for is_forward in (True, False)]
    return dim if dims[dim] in scans else None


def _scan(size: int, *, is_forward: bool) -> WindowDimension:
    """Return the window of a scan of ``size`` elements."""
    low, high = (size - 1, 0) if is_forward else (0, size - 1)
    return WindowDimension(size, padding_low=low, padding_high=high)


def _plain_kind(reduce: HloInstruction) -> ReductionKind | None:
    """Return the kind of reduction, if it starts from its neutral element."""
    kind, init = reduction_kind(reduce.to_apply), through_annotations(reduce.operands[-1])
    if kind is None or not isinstance(init.attrs, ConstantAttrs) or init.attrs.literal is None:
        return None
    neutral = identity_value(kind, init.array_shape.element_type)
    return kind if init.attrs.literal.array == Literal.of(init.shape, neutral).array else None


def _before(
    context: PartitionContext,
    local: ShardedValue,
    dim: int,
    kind: ReductionKind,
    *,
    is_forward: bool,
) -> HloInstruction:
    """Return the reduction of the totals of the tiles that the scan meets before this device's, without ``dim``."""
    b, state = context.builder, local.state
    last = local.hlo.dims[dim] - 1 if is_forward else 0
    total = b.slice_along(local.hlo, dim, last, last + 1)
    shards = state.shards(context.axes)
    gathered = tuple(shards[d] if d == dim else n for d, n in enumerate(local.shape.dims))
    value = ShardedValue(total, state, local.shape.with_dims(gathered))
    totals = context.reshard(value, state.with_dim(dim, ())).hlo
    own = b.broadcast_scalar(context.coordinate(state.dims[dim]), totals.dims)
    index = b.iota(own.array_shape.element_type, totals.dims, dim)
    is_before = b.compare(index, own, "LT" if is_forward else "GT")
    neutral = b.identity(kind, totals.array_shape.element_type)
    met = b.select(is_before, totals, b.broadcast_scalar(neutral, totals.dims))
    return b.reduce(met, (dim,), kind)
