"""Slices of all-gathers that a device need not ask others for, or not all of them."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from collectives.passes.all_gather_matching import Gather, groups_of_all, match_gather, reshaped
from collectives.passes.device_scalars import scalar_by_device, values_by_device
from collectives.passes.groups import named_groups
from spmd.builder import Builder, ModuleScope
from spmd.device_groups import DeviceGroups
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.passes.algebraic.match import used_once
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_pinned
from spmd.shape import PrimitiveType


@register_pass
@dataclass(frozen=True)
class AllGatherDynamicSliceSimplifier(Simplifier):
    """Replace a dynamic-slice of an all-gather, possibly reshaped, by a gather among fewer devices, or by none.

        g = f32[16,4] all-gather(x), dimensions={0}, replica_groups={{0,1,2,3}}        x is f32[4,4]
        r = f32[s,4] dynamic-slice(g, offset, 0)

        offset = 4 * position in the group, s = 4      r = x
        offset within the device's own four rows       r = dynamic-slice(x, offset - 4 * position, 0)
        offset = 8 * (position / 2), s = 8             r = all-gather(x), dimensions={0}, replica_groups={{0,1},{2,3}}

    The last one applies if the gather has no other user. Offsets are evaluated for every device from partition-id and
    replica-id (device_scalars.py), whatever instructions compute them.
    """

    name: ClassVar[str] = "all-gather-dynamic-slice-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.DYNAMIC_SLICE,)

    def simplify(self, module: HloModule) -> Simplify:
        scope = ModuleScope(module)

        def simpler(x: HloInstruction) -> HloInstruction | None:
            part = match_gathered_part(x)
            return _taken(part, builder_at(x, scope)) if part is not None else None

        return simpler


@dataclass(frozen=True)
class GatheredPart:
    """A dynamic-slice, along ``dimension``, of a gather: members' blocks of ``block`` elements, one after the other.

    It has ``size`` elements, on each device from ``starts``. The dimensions before ``dimension`` are those of the
    gather, so elements are counted from there on; ``row`` is the number of elements in one step along ``dimension``.
    ``alone``: whether the gather has no other user.
    """

    slice: HloInstruction
    gather: Gather
    dimension: int
    row: int
    starts: NDArray
    groups: DeviceGroups
    alone: bool

    @property
    def block(self) -> int:
        operand = self.gather.operand
        return math.prod(operand.dims[self.gather.dimension :])

    @property
    def size(self) -> int:
        return self.row * self.slice.dims[self.dimension]

    @property
    def positions(self) -> NDArray:
        """The position of each device among the members of its group."""
        return self.groups.positions(len(self.starts))


def match_gathered_part(x: HloInstruction) -> GatheredPart | None:
    """Return the slice ``x`` of an all-gather. Returns None for slices of other values, and if the offset is unknown or
    no dimension is sliced as it was gathered.
    """
    source, alone = x.operand(0), used_once(x.operand(0))
    while source.opcode is Opcode.RESHAPE:
        source = source.operand(0)
        alone = alone and used_once(source)
    gather = match_gather(source)
    groups = groups_of_all(gather) if gather is not None else None
    if gather is None or groups is None:
        return None
    dimension = _dimension_of_members(x, gather)
    offset = values_by_device(x.operand(1 + dimension)) if dimension is not None else None
    if dimension is None or offset is None:
        return None
    row = math.prod(x.operand(0).dims[dimension + 1 :])
    starts = np.clip(offset, 0, x.operand(0).dims[dimension] - x.dims[dimension]) * row
    alone = alone and not is_pinned(source)
    return GatheredPart(x, gather, dimension, row, starts, groups, alone)


def _dimension_of_members(x: HloInstruction, gather: Gather) -> int | None:
    """Return the sliced dimension along which the members lie: as many elements precede it as precede
    the gathered one.
    """
    before = math.prod(gather.instruction.dims[: gather.dimension])
    full_dims = x.operand(0).dims
    for d, n in enumerate(full_dims):
        if x.dims[d] != n and math.prod(full_dims[:d]) == before and x.dims[d]:
            return d
    return None


def _taken(part: GatheredPart, b: Builder) -> HloInstruction | None:
    """Return the slice from the device's own block, or from a gather of fewer members. Returns None if it needs the
    entire gather.
    """
    within = part.starts - part.positions * part.block
    if (within >= 0).all() and (within + part.size <= part.block).all():
        taken = _of_own_block(part, within, b)
    elif part.alone and (members := _members_taken(part)):
        taken = _of_fewer_members(part, members, b)
    else:
        return None
    return _sliced_elsewhere(part, taken, b) if taken is not None else None


def _of_own_block(part: GatheredPart, within: NDArray, b: Builder) -> HloInstruction | None:
    if part.size == part.block:
        return reshaped(b, part.gather.operand, _dims_of(part, part.size))
    if part.block % part.row:
        return None
    own = reshaped(b, part.gather.operand, _dims_of(part, part.block))
    starts = [b.scalar(PrimitiveType.S32, 0)] * len(own.dims)
    starts[part.dimension] = scalar_by_device(b, (within // part.row).tolist())
    return b.dynamic_slice(own, starts, _dims_of(part, part.size))


def _members_taken(part: GatheredPart) -> int:
    """Return the number of members' blocks that the slice covers if they are the device's share of the group, else
    0."""
    members, rest = divmod(part.size, part.block)
    if rest or not members or part.gather.count % members:
        return 0
    return members if (part.starts == part.positions // members * part.size).all() else 0


def _of_fewer_members(part: GatheredPart, members: int, b: Builder) -> HloInstruction:
    shares = named_groups(part.groups.cut(members))
    fewer = b.all_gather(part.gather.operand, shares, part.gather.dimension)
    fewer.annotations = part.gather.instruction.annotations
    return reshaped(b, fewer, _dims_of(part, part.size))


def _dims_of(part: GatheredPart, elements: int) -> tuple[int, ...]:
    """Return the dims of the sliced array with ``elements`` elements from ``dimension`` on."""
    full_dims = part.slice.operand(0).dims
    return (*full_dims[: part.dimension], elements // part.row, *full_dims[part.dimension + 1 :])


def _sliced_elsewhere(part: GatheredPart, taken: HloInstruction, b: Builder) -> HloInstruction:
    """Slice ``taken`` along the other dimensions as the slice does."""
    if taken.dims == part.slice.dims:
        return taken
    starts = list(part.slice.operands[1:])
    starts[part.dimension] = b.scalar_like(starts[part.dimension], 0)
    return b.dynamic_slice(taken, starts, part.slice.dims)
