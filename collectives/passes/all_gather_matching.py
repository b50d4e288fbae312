"""Matching of all-gathers, for several passes: operand, how often the result holds it, and equal all-gathers."""

from __future__ import annotations

from collectives.passes.device_scalars import device_count
from collectives.passes.groups import known_groups
from spmd.builder import Builder
from spmd.device_groups import DeviceGroups
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs
from spmd.shape import ArrayShape


@dataclass(frozen=True)
class Gather:
    """An all-gather: ``count`` members' operands, one behind the other along ``dimension``."""

    instruction: HloInstruction
    dimension: int
    count: int

    @property
    def operand(self) -> HloInstruction:
        return self.instruction.operand(0)


def match_gather(x: HloInstruction) -> Gather | None:
    """Match an all-gather of one array. Returns None for other instructions, for empty results, and if a layout is
    prescribed.
    """
    if x.opcode is not Opcode.ALL_GATHER or not isinstance(x.shape, ArrayShape):
        return None
    attrs = x.attrs_as(CollectiveAttrs)
    d = attrs.dimension
    if d is None or attrs.constrain_layout or not x.shape.num_elements:
        return None
    return Gather(x, d, x.dims[d] // x.operand(0).dims[d])


def groups_of_all(gather: Gather) -> DeviceGroups | None:
    """Return the groups of the all-gather; None if they are unknown or do not cover all devices."""
    groups = known_groups(gather.instruction)
    assert gather.instruction.parent is not None
    module = gather.instruction.parent.module
    if groups is None or module is None or not groups.covers(device_count(module)):
        return None
    return groups


def moved_members(b: Builder, x: HloInstruction, count: int, old: int, new: int) -> HloInstruction:
    """Move the ``count`` members of an all-gather from dimension ``old`` to dimension ``new``.

    f32[6,4] of 3 members from 0 to 1:  f32[3,2,4] reshape, f32[2,3,4] transpose, f32[2,12] reshape
    """
    if old == new:
        return x
    part = list(x.dims)
    part[old] //= count
    split = b.reshape(x, (*part[:old], count, *part[old:]))
    order = [i for i in range(len(part) + 1) if i != old]
    order.insert(new, old)
    part[new] *= count
    return b.reshape(b.transpose(split, order), part)
