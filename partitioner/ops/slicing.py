"""Slices, pads and concatenations: dimensions that are taken entirely pass through.

    slice                 [i, s]              -> [i, s]        s windowed: sharded with halos (most of it is taken)
    slice, every kth      [i, s]              -> [i, s]        s windowed too
    slice, a small part   [i, s]              -> [i, s']       s: SUM, each device gives what it owns, else zeros
    dynamic-slice         [i, s], [], []      -> [i, s']       s: SUM; start indices are scalars
    dynamic-update-slice  [i, s], [i, u], []  -> [i, s]        s passes, each device writes into its tile; u replicated
    pad                   [i, p], []          -> [i, p]        p windowed
    concatenate           [i, a], [i, b]      -> [i, a]        a windowed, where it is most of the result; b replicated

owned_slices explains why the SUM and the sharded update are correct; halo_slices exchanges the halos.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from partitioner.ops.elementwise import dims_pass
from partitioner.ops.owner import owner_sum
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import localize, sharding_rule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Attrs, Opcode
from spmd.ops.attrs import DimensionsAttrs, DynamicSliceAttrs, PadAttrs, SliceAttrs
from spmd.ops.window import WindowDimension
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import PartitionContext


@sharding_rule(Opcode.SLICE)
def slice_rule(slice_: HloInstruction) -> OpShardingRule:
    untouched = untouched_by_slice(slice_)
    rule = RuleBuilder.for_instruction(slice_)
    for d, (size, part) in enumerate(zip(slice_.operand(0).dims, slice_.dims, strict=True)):
        if d in untouched:
            rule.factor(part, {0: d}, {0: d})
        elif is_window(slice_, d):
            rule.factor(part, {0: d}, {0: d}, windowed=True)
        elif part:
            rule.factor(size, {0: d}, reduction=owner_sum(slice_.array_shape.element_type))
    return rule.build()


def is_window(slice_: HloInstruction, dim: int) -> bool:
    """Return whether the slice takes a run of at least half of a dimension, but not all of it, or every kth element.

    A single element has no stride, whatever the text states.
    """
    size, part = slice_.operand(0).dims[dim], slice_.dims[dim]
    strided = part > 1 and slice_.attrs_as(SliceAttrs).strides[dim] > 1
    return part > 0 and (strided or part < size <= 2 * part)


def slide_of_slice(slice_: HloInstruction, dim: int) -> WindowDimension:
    """Return a slice as a window of one element that slides from its start with its stride."""
    attrs = slice_.attrs_as(SliceAttrs)
    stride = attrs.strides[dim] if slice_.dims[dim] > 1 else 1
    return WindowDimension(stride=stride, padding_low=-attrs.starts[dim])


def slide_of_pad(pad: HloInstruction, dim: int) -> WindowDimension:
    """Return a pad as a window of one element that slides over the elements with the interior padding between them."""
    attrs = pad.attrs_as(PadAttrs)
    return WindowDimension(
        padding_low=attrs.low[dim],
        padding_high=attrs.high[dim],
        base_dilation=attrs.interior[dim] + 1,
    )


@sharding_rule(Opcode.PAD)
def padded_rule(pad: HloInstruction, *, windowed: bool = True) -> OpShardingRule:
    untouched = untouched_by_pad(pad)
    rule = RuleBuilder.for_instruction(pad)
    for d, (size, result) in enumerate(zip(pad.operand(0).dims, pad.dims, strict=True)):
        if d in untouched:
            rule.factor(size, {0: d}, {0: d})
        elif windowed and result:
            rule.factor(min(size, result), {0: d}, {0: d}, windowed=True)
    return rule.build()


@sharding_rule(Opcode.CONCATENATE)
def joined_rule(concatenate: HloInstruction, *, windowed: bool = True) -> OpShardingRule:
    (joined,) = concatenate.attrs_as(DimensionsAttrs).dimensions
    main = main_part(concatenate)
    rule = RuleBuilder.for_instruction(concatenate)
    for d, size in enumerate(concatenate.dims):
        if d != joined:
            rule.factor(size, dict.fromkeys(range(concatenate.num_operands), d), {0: d})
        elif windowed and main is not None:
            rule.factor(concatenate.operand(main).dims[d], {main: d}, {0: d}, windowed=True)
    return rule.build()


def main_part(concatenate: HloInstruction) -> int | None:
    """Return the operand that makes up more than half of the result, or None."""
    (joined,) = concatenate.attrs_as(DimensionsAttrs).dimensions
    for i, operand in enumerate(concatenate.operands):
        if 2 * operand.dims[joined] > concatenate.dims[joined]:
            return i
    return None


@sharding_rule(Opcode.DYNAMIC_SLICE)
def dynamic_slice_rule(slice_: HloInstruction) -> OpShardingRule:
    """Return the rule of a dynamic slice. A dimension taken entirely starts at 0 whatever its index: indices are
    clamped.
    """
    rule = RuleBuilder.for_instruction(slice_)
    for d, (size, part) in enumerate(zip(slice_.operand(0).dims, slice_.dims, strict=True)):
        if size == part:
            rule.factor(size, {0: d}, {0: d})
        else:
            rule.factor(size, {0: d}, reduction=owner_sum(slice_.array_shape.element_type))
    return rule.build()


@sharding_rule(Opcode.DYNAMIC_UPDATE_SLICE)
def dynamic_update_slice_rule(update: HloInstruction) -> OpShardingRule:
    rule = RuleBuilder.for_instruction(update)
    for d, (size, part) in enumerate(zip(update.dims, update.operand(1).dims, strict=True)):
        rule.factor(size, {0: d, 1: d} if size == part else {0: d}, {0: d})
    return rule.build()


@sharding_rule(Opcode.SET_DIMENSION_SIZE)
def set_dimension_size_rule(instruction: HloInstruction) -> OpShardingRule:
    """Return the rule in which the dimension that gets a run-time size is not split."""
    sized = instruction.attrs_as(DimensionsAttrs).dimensions
    return dims_pass(instruction, [d for d in range(len(instruction.dims)) if d not in sized])


@sharding_rule(Opcode.GET_DIMENSION_SIZE)
def get_dimension_size_rule(_: HloInstruction) -> OpShardingRule | None:
    """Return None (replicate): a per-device array would return its own size."""
    return None


@localize(Opcode.DYNAMIC_SLICE)
def localize_dynamic_slice(
    _: PartitionContext, __: HloInstruction, ___: list[HloInstruction], results: list[ArrayShape]
) -> Attrs:
    return DynamicSliceAttrs(results[0].dims)


def untouched_by_slice(slice_: HloInstruction) -> list[int]:
    """Return the dimensions that the slice takes entirely."""
    attrs = slice_.attrs_as(SliceAttrs)
    return [
        d
        for d, size in enumerate(slice_.operand(0).dims)
        if (attrs.starts[d], attrs.limits[d], attrs.strides[d]) == (0, size, 1)
    ]


def untouched_by_pad(pad: HloInstruction) -> list[int]:
    """Return the dimensions without padding, neither at the ends nor between elements."""
    attrs = pad.attrs_as(PadAttrs)
    return [
        d
        for d, size in enumerate(pad.operand(0).dims)
        if attrs.low[d] == 0 and attrs.high[d] == 0 and (attrs.interior[d] == 0 or size <= 1)
    ]
