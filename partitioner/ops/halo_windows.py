"""Reduce-window and convolution over a sharded dimension: neighbours exchange the edges of tiles, then the op runs
locally.

    window        result tile k needs x[k*t'*stride - low, + (t' - 1)*stride + window); positions outside x hold what
                  adds nothing (the reduction's neutral element, zero)
    contraction   a filter gradient split along the image: device k holds gradient tile k and needs
                  x[k*t*dilation - low, + (t - 1)*dilation + (results - 1)*stride + 1); its sum is partial

Here t' is the result's tile and t the kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from partitioner.ops.convolution import contracts, local_group_counts, spatial_rule
from partitioner.ops.elementwise import result_leaf_dims
from partitioner.ops.halo import (
    HaloWindow,
    LocalWindow,
    Windows,
    exchange,
    plan_with_windows,
    sliding,
    trimmed,
)
from partitioner.ops.reduce import is_trivial, window_rule
from partitioner.ops.scan_windows import partition_scan
from partitioner.partition.candidates import OpPlan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import emit_local, local_operands
from partitioner.registry import partition
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConvolutionAttrs, WindowAttrs
from spmd.ops.reduction import reduction_kind
from spmd.ops.window import Window, WindowDimension


@partition(Opcode.REDUCE_WINDOW)
def partition_reduce_window(
    context: PartitionContext, reduce: HloInstruction
) -> tuple[ShardedValue, ...]:
    scanned = partition_scan(context, reduce)
    if scanned is not None:
        return scanned
    window = reduce.attrs_as(WindowAttrs).window
    count = reduce.num_operands // 2
    sizes = result_leaf_dims(reduce)[0]

    def local_windows(plan: OpPlan) -> list[LocalWindow | None]:
        tiles = plan.results[0].local_dims(sizes, context.axes)
        shards = plan.operands[0].shards(context.axes)
        return [
            _slid(window.dims[d], tiles[d], size, shards[d], sizes[d])
            for d, size in enumerate(reduce.operand(0).dims)
        ]

    def windows_of(plan: OpPlan) -> Windows | None:
        split = _split_dims(plan, range(len(sizes)), window)
        per_dim = _needed(split, range(len(sizes)), local_windows(plan))
        if per_dim is None:
            return None
        return {(i, d): halo for d, halo in per_dim.items() for i in range(count)}

    rule, plan, windows = plan_with_windows(
        context, reduce, lambda windowed: window_rule(reduce, windowed=windowed), windows_of
    )
    operands = local_operands(context, reduce, rule, plan)
    for (i, d), halo in windows.items():
        value = _value(reduce, plan, operands, i)
        operands[i] = exchange(
            context, value, d, halo, _outside(context, reduce, operands[count + i])
        )
    split_dims = [d for i, d in windows if i == 0]
    local = _local_window(window, range(len(sizes)), split_dims, local_windows(plan))
    return emit_local(context, reduce, plan, operands, WindowAttrs(local))


def _outside(
    context: PartitionContext, reduce: HloInstruction, init: HloInstruction
) -> HloInstruction:
    """Return what a window combines for positions outside the array, which is nothing: it starts from ``init`` once.

    A reducer whose neutral element is not known is taken to start from it.
    """
    kind = reduction_kind(reduce.to_apply)
    if kind is None:
        return init
    return context.builder.identity(kind, init.array_shape.element_type)


@partition(Opcode.CONVOLUTION)
def partition_convolution(
    context: PartitionContext, convolution: HloInstruction
) -> tuple[ShardedValue, ...]:
    attrs = convolution.attrs_as(ConvolutionAttrs)
    numbers = attrs.dimension_numbers

    def local_windows(plan: OpPlan) -> list[LocalWindow | None]:
        return [
            _spatial(context, convolution, plan, position, window)
            for position, window in enumerate(attrs.window.dims)
        ]

    def windows_of(plan: OpPlan) -> Windows | None:
        split = _split_dims(plan, numbers.input_spatial, attrs.window)
        per_dim = _needed(split, numbers.input_spatial, local_windows(plan))
        return None if per_dim is None else {(0, d): halo for d, halo in per_dim.items()}

    rule, plan, windows = plan_with_windows(
        context,
        convolution,
        lambda windowed: spatial_rule(convolution, windowed=windowed),
        windows_of,
    )
    operands = local_operands(context, convolution, rule, plan)
    for (_, d), halo in windows.items():
        zero = context.builder.scalar_like(operands[0], 0)
        value = _value(convolution, plan, operands, 0)
        operands[0] = exchange(context, value, d, halo, zero)
    split_dims = [d for _, d in windows]
    local = _local_window(attrs.window, numbers.input_spatial, split_dims, local_windows(plan))
    result = plan.results[0].local_dims(convolution.dims, context.axes)
    features, batch = local_group_counts(numbers, operands[0].dims, operands[1].dims, result)
    local_attrs = replace(
        attrs, window=local, feature_group_count=features, batch_group_count=batch
    )
    return emit_local(context, convolution, plan, operands, local_attrs)


def _split_dims(plan: OpPlan, dims: Sequence[int], window: Window) -> list[int]:
    """Return those of ``dims`` (operand 0's, one per window dimension) that are sharded and have a sliding window."""
    return [
        d
        for d, w in zip(dims, window.dims, strict=True)
        if plan.operands[0].dims[d] and not is_trivial(w)
    ]


def _needed(
    split: list[int], dims: Sequence[int], local: list[LocalWindow | None]
) -> dict[int, HaloWindow] | None:
    """Return the halo of each split dimension; None if one of them has no local window."""
    found: dict[int, HaloWindow] = {}
    for d, part in zip(dims, local, strict=True):
        if d in split:
            if part is None:
                return None
            found[d] = part[0]
    return found


def _local_window(
    window: Window, dims: Sequence[int], split: list[int], local: list[LocalWindow | None]
) -> Window:
    return Window(
        tuple(
            part[1] if part is not None and d in split else unsplit
            for d, unsplit, part in zip(dims, window.dims, local, strict=True)
        )
    )


def _value(
    instruction: HloInstruction, plan: OpPlan, operands: list[HloInstruction], i: int
) -> ShardedValue:
    shape = instruction.operand(i).array_shape.without_layout()
    return ShardedValue(operands[i], plan.operands[i], shape)


def _spatial(
    context: PartitionContext,
    convolution: HloInstruction,
    plan: OpPlan,
    position: int,
    window: WindowDimension,
) -> LocalWindow | None:
    numbers = convolution.attrs_as(ConvolutionAttrs).dimension_numbers
    results = convolution.dims[numbers.output_spatial[position]]
    image = numbers.input_spatial[position]
    size = convolution.operand(0).dims[image]
    shards = plan.operands[0].shards(context.axes)[image]
    if contracts(convolution, position):
        kernel = plan.operands[1].local_dims(convolution.operand(1).dims, context.axes)
        local = contracting(window, kernel[numbers.kernel_spatial[position]], results)
        return trimmed(local, size, shards, results + window.size)
    tiles = plan.results[0].local_dims(convolution.dims, context.axes)
    return _slid(window, tiles[numbers.output_spatial[position]], size, shards, results)


def _slid(
    window: WindowDimension, tile: int, size: int, shards: int, results: int
) -> LocalWindow | None:
    """Return the local window of a result tile of `tile` elements, without elements that no device has."""
    # A window with a single position has no stride.
    placed = window if results > 1 else replace(window, stride=1)
    local = sliding(placed, tile)
    return local and trimmed(local, size, shards, results)


def contracting(window: WindowDimension, tile: int, results: int) -> LocalWindow:
    """Return the local window for a kernel tile of ``tile`` and ``results`` window positions."""
    dilation = window.window_dilation
    length = (tile - 1) * dilation + (results - 1) * window.stride + 1
    local = replace(window, size=tile, padding_low=0, padding_high=0)
    return HaloWindow(tile * dilation, -window.padding_low, length), local
