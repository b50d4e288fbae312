"""Shape conversions at the edges of manual regions (shard_map): from global to per-device shapes and back.

Inside a region the program is written per device for the manual axes; the other (free) axes may still shard its values.
At the edge a global dimension of size n split over manual axes is (manual part k) x (local size n/k): two factors, the
first pinned to its axes. So a conversion has a sharding rule like any other op, and costs no instruction once the
operand has the right state.

Two notations exist: ``xla.sdy.GlobalToLocalShape`` / ``LocalToGlobalShape`` over all values of the region, and GSPMD's
``SPMDFullToShardShape`` / ``SPMDShardToFullShape`` per value, next to a ``Sharding`` call on the global side.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.annotations.reader import (
    SDY_IN_SHARDINGS,
    SDY_MANUAL_AXES,
    SDY_OUT_SHARDINGS,
    AnnotationReader,
    Constraint,
)
from partitioner.devices.axes import Axes, DimAxes
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from spmd.errors import ShardingError
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.custom_call import custom_call_target
from spmd.shape import ArrayShape, leaves
from spmd.text.sharding.shardy_text import parse_sharding_per_value

SDY_ENTRY = "xla.sdy.GlobalToLocalShape"
SDY_EXIT = "xla.sdy.LocalToGlobalShape"
GSPMD_ENTRY = "SPMDFullToShardShape"
GSPMD_EXIT = "SPMDShardToFullShape"


@dataclass(frozen=True, slots=True)
class ConvertedValue:
    """One converted value: its global and local shape, the manual axes of each dimension (``pinned``), and the
    constraint on the free axes.
    """

    global_shape: ArrayShape
    local_shape: ArrayShape
    pinned: DimAxes
    free: Constraint


@dataclass(frozen=True, slots=True)
class ShapeConversion:
    """Custom call that converts values from global to local shapes (``is_entry``) or back. ``axes``: manual axes."""

    is_entry: bool
    axes: Axes
    values: tuple[ConvertedValue, ...]

    def rule(self, position: int, axis_count: dict[Axes, int]) -> OpShardingRule:
        """Return the rule of the value at ``position``. ``axis_count``: number of devices along each pinned list of
        axes.
        """
        value = self.values[position]
        sides = (value.global_shape.dims, value.local_shape.dims)
        before, after = sides if self.is_entry else sides[::-1]
        builder = RuleBuilder([before], [after])
        for dim, size in enumerate(value.local_shape.dims):
            pinned = value.pinned[dim]
            outer = {0: dim}
            if pinned and self.is_entry:
                builder.factor(axis_count[pinned], operands=outer, pinned=pinned)
            elif pinned:
                builder.factor(axis_count[pinned], results=outer, pinned=pinned)
            builder.factor(size, operands={0: dim}, results={0: dim})
        return builder.build()


def shape_conversion(
    instruction: HloInstruction, reader: AnnotationReader
) -> ShapeConversion | None:
    """Return the shape conversion that a custom call is, or None. Raises ShardingError if the shapes do not follow from
    the shardings.
    """
    target = custom_call_target(instruction)
    if target in (SDY_ENTRY, SDY_EXIT):
        return _shardy_conversion(instruction, reader, is_entry=target == SDY_ENTRY)
    if target == GSPMD_ENTRY:
        return _gspmd_conversion(instruction, reader, is_entry=True)
    if target == GSPMD_EXIT:
        return _gspmd_conversion(instruction, reader, is_entry=False)
    return None


def _shardy_conversion(
    instruction: HloInstruction, reader: AnnotationReader, *, is_entry: bool
) -> ShapeConversion:
    key = SDY_IN_SHARDINGS if is_entry else SDY_OUT_SHARDINGS
    text = instruction.annotations.frontend(key)
    manual_text = instruction.annotations.frontend(SDY_MANUAL_AXES)
    if text is None or manual_text is None:
        raise ShardingError(f"{instruction.name}: {key} or {SDY_MANUAL_AXES} is missing")
    shardings = parse_sharding_per_value(text)
    results = [shape for _, shape in leaves(instruction.shape) if isinstance(shape, ArrayShape)]
    if not len(shardings) == len(results) == instruction.num_operands:
        raise ShardingError(
            f"{instruction.name}: {instruction.num_operands} operands, {len(results)} results, "
            f"{len(shardings)} shardings"
        )
    if not shardings:
        return ShapeConversion(is_entry, (), ())
    manual = reader.manual_axes(manual_text, reader.mesh(shardings[0]))
    values = []
    for operand, result, sharding in zip(instruction.operands, results, shardings, strict=True):
        inner, outer = (result, operand.array_shape) if is_entry else (operand.array_shape, result)
        constraint = reader.of_shardy(sharding, outer)
        assert constraint is not None
        values.append(_value(instruction, reader, constraint, manual, outer, inner))
    return ShapeConversion(is_entry, manual, tuple(values))


def _gspmd_conversion(
    instruction: HloInstruction, reader: AnnotationReader, *, is_entry: bool
) -> ShapeConversion:
    (operand,) = instruction.operands
    (own,) = reader.of_instruction(instruction)
    (other,) = reader.of_instruction(operand)
    inside, outside = (own, other) if is_entry else (other, own)
    inner, outer = instruction.array_shape, operand.array_shape
    if not is_entry:
        inner, outer = outer, inner
    # A value without an annotation is manual along all axes inside, and replicated outside.
    inside = inside or replace(Constraint.replicated(inner.rank), manual=reader.axes.all)
    outside = outside or Constraint.replicated(outer.rank)
    manual = tuple(sorted(inside.manual))
    value = _value(instruction, reader, outside, manual, outer, inner)
    free = replace(inside, manual=())
    return ShapeConversion(is_entry, manual, (ConvertedValue(outer, inner, value.pinned, free),))


def _value(
    instruction: HloInstruction,
    reader: AnnotationReader,
    outside: Constraint,
    manual: Axes,
    outer: ArrayShape,
    inner: ArrayShape,
) -> ConvertedValue:
    pinned = tuple(tuple(a for a in axes if a in manual) for axes in outside.dims)
    for dim, axes in enumerate(pinned):
        if outside.dims[dim][: len(axes)] != axes:
            raise ShardingError(
                f"{instruction.name}: dimension {dim} has free axes before manual ones"
            )
        if inner.dims[dim] * reader.axes.count(axes) != outer.dims[dim]:
            raise ShardingError(
                f"{instruction.name}: dimension {dim} is {outer.dims[dim]} globally and {inner.dims[dim]} inside, "
                f"but is split {reader.axes.count(axes)} ways"
            )
    rest = tuple(axes[len(p) :] for axes, p in zip(outside.dims, pinned, strict=True))
    return ConvertedValue(outer, inner, pinned, replace(outside, dims=rest))
