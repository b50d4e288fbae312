"""An all-reduce of which each device keeps its own slice becomes a reduce-scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from collectives.passes.device_scalars import device_count, values_by_device
from collectives.passes.groups import among_devices
from collectives.passes.reduced import is_sum_over_elements
from collectives.passes.reducing import reducing
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.device_groups import DeviceGroups
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, DynamicSliceAttrs
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_pinned, replace_and_prune

#: Ops that may stand between all-reduce and slice: they move elements in the same way on every device.
_MOVES = frozenset({Opcode.RESHAPE, Opcode.BITCAST, Opcode.TRANSPOSE, Opcode.COPY})


@register_pass
@dataclass(frozen=True)
class ReduceScatterCreator(InstructionPass):
    """sum = f32[8] all-reduce(x)                               =>  part = f32[2] reduce-scatter(x), dimensions={0}
    part = f32[2] dynamic-slice(sum, 2 * position in the group)

    All users of the sum, through reshapes, transposes and conversions, must be such slices, of one dimension and equal.
    There may also be sums over elements: these are done before, with an all-reduce of the smaller results.

    A slice's start may be computed in any way from the device's number, as long as the members of each group have all
    the parts. The members are then in the order of their parts, so floats may be added in another order.
    """

    name: ClassVar[str] = "reduce-scatter-creator"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_REDUCE,)

    def editor(self, module: HloModule) -> Edit:
        scope, effects = ModuleScope(module), SideEffects()

        def edit(x: HloInstruction) -> bool:
            scattered = match(x, device_count(module))
            if scattered is None:
                return False
            b = builder_at(x, scope)
            part = scattered.reduce_scatter(x, b)
            for total in scattered.totals:
                replace_and_prune(total, swapped(total, x, b), effects)
            for result_slice in scattered.slices:
                replace_and_prune(result_slice.slice, result_slice.converted(part, b), effects)
            return True

        return edit


@dataclass(frozen=True)
class _ResultSlice:
    """A slice of an all-reduce's result. ``steps``: what stands between the two, the first one first."""

    slice: HloInstruction
    steps: tuple[HloInstruction, ...]

    @property
    def moves(self) -> tuple[HloInstruction, ...]:
        return tuple(step for step in self.steps if step.opcode in _MOVES)

    def converted(self, part: HloInstruction, b: Builder) -> HloInstruction:
        """Convert ``part`` as the conversions between all-reduce and slice do."""
        for step in self.steps:
            if step.opcode is Opcode.CONVERT:
                part = b.convert(part, step.array_shape.element_type)
        return part


@dataclass(frozen=True)
class _Scattered:
    """Common properties of the slices of an all-reduce's result; ``groups`` are in the order of the parts that members
    keep.

    ``totals``: reduces of the result.
    """

    slices: Sequence[_ResultSlice]
    totals: Sequence[HloInstruction]
    dimension: int
    groups: DeviceGroups

    def reduce_scatter(self, x: HloInstruction, b: Builder) -> HloInstruction:
        """Return the reduce-scatter of the operand of the all-reduce ``x``, moved as the slices move it."""
        value = x.operand(0)
        for step in self.slices[0].moves:
            shape = step.array_shape.with_element_type(value.array_shape.element_type)
            value = b.computation.add(step.clone(shape, (value,)))
        attrs = among_devices(x, self.groups, b.scope, self.dimension)
        part = b.create(Opcode.REDUCE_SCATTER, (value,), attrs, calls=x.called_computations)
        part.annotations = x.annotations
        return part


def match(x: HloInstruction, devices: int) -> _Scattered | None:
    """Return the all-reduce ``x`` if only slices of it are used, a different one by each member of a
    group; else None.
    """
    what = reducing(x)
    if what is None or what.kind is None or x.num_operands != 1:
        return None
    totals = [user for user in x.users if is_sum_over_elements(user, what.kind)]
    slices = _slices_of(x, (), totals)
    if 2 * sum(total.shape.byte_size for total in totals) >= x.shape.byte_size:
        return None
    if not slices or what.groups.size == 1 or not what.groups.covers(devices):
        return None
    ways = {
        (result_slice.moves, _scattering(result_slice.slice, what.groups))
        for result_slice in slices
    }
    if len(ways) != 1:
        return None
    ((_, way),) = ways
    return None if way is None else _Scattered(slices, totals, *way)


def swapped(total: HloInstruction, x: HloInstruction, b: Builder) -> HloInstruction:
    """Reduce on each device first: return ``total``, a reduce of the all-reduce ``x``, as an all-reduce of local
    reductions.
    """
    operands = (x.operand(0), *total.operands[1:])
    local = b.create(total.opcode, operands, total.attrs, calls=total.called_computations)
    attrs = x.attrs_as(CollectiveAttrs)
    if attrs.channel_id is not None:
        attrs = replace(attrs, channel_id=b.scope.channel_id())
    return b.create(x.opcode, (local,), attrs, calls=x.called_computations)


def _slices_of(
    x: HloInstruction, steps: tuple[HloInstruction, ...], apart: Sequence[HloInstruction] = ()
) -> list[_ResultSlice] | None:
    """Return the slices that all users of ``x``, except those in ``apart``, end in. Returns None if one is no slice."""
    if x.is_root:
        return None
    found: list[_ResultSlice] = []
    for user in x.users:
        if is_pinned(user):
            return None
        if user in apart:
            continue
        if user.opcode is Opcode.DYNAMIC_SLICE and user.operand(0) is x:
            found.append(_ResultSlice(user, steps))
        elif user.opcode in _MOVES or user.opcode is Opcode.CONVERT:
            behind = _slices_of(user, (*steps, user))
            if behind is None:
                return None
            found.extend(behind)
        else:
            return None
    return found


def _scattering(x: HloInstruction, groups: DeviceGroups) -> tuple[int, DeviceGroups] | None:
    """Return the dimension that the slice ``x`` cuts, and the groups with their members in the order
    of their slices.
    """
    sizes, full_dims = x.attrs_as(DynamicSliceAttrs).sizes, x.operand(0).dims
    cut = [d for d in range(len(full_dims)) if sizes[d] != full_dims[d]]
    members = groups.size
    if len(cut) != 1 or members is None or sizes[cut[0]] * members != full_dims[cut[0]]:
        return None
    (d,) = cut
    starts = values_by_device(x.operand(1 + d))
    if starts is None:
        return None
    begins = np.clip(starts, 0, full_dims[d] - sizes[d])[groups.members]
    order = np.argsort(begins, axis=1)
    if (np.take_along_axis(begins, order, axis=1) != np.arange(members) * sizes[d]).any():
        return None
    if (order == np.arange(members)).all():
        return d, groups
    return d, DeviceGroups.of(np.take_along_axis(groups.members, order, axis=1).tolist())
