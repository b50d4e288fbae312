"""Gather once what is gathered in several forms."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import field, replace
from typing import ClassVar, Final

from collectives.passes.all_gather_matching import Gather, match_gather, moved_members
from collectives.passes.collective_cse import CollectiveCse, RetainedCollectives
from collectives.passes.rearrangements import PLACING, bits_of, line_of, one_way, undoing_order
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, DimensionsAttrs
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import is_pinned

_REARRANGING: Final = (*PLACING, Opcode.CONVERT)


@register_pass
@dataclass(frozen=True)
class AllGatherCse(CollectiveCse[Gather]):
    """Compute an all-gather from another one if their operands are one value, reshaped, transposed or converted.

        g = f32[8,3] all-gather(x), dimensions={0}                   g = f32[8,3] all-gather(x), dimensions={0}
        c = bf16[3,4] convert(transpose(x))                   =>
        h = bf16[3,8] all-gather(c), dimensions={1}                  h = bf16[3,8] convert(transpose(g))

    Members compute it from the first result, so nothing is sent; the two may gather along different dimensions. Only
    the second one may have conversions. The result of an optimization barrier counts as another value: programs gather
    it again so that the first result need not stay in memory (rematerialization).
    """

    name: ClassVar[str] = "all-gather-cse"

    def match(self, x: HloInstruction) -> Gather | None:
        return None if is_pinned(x) else match_gather(x)

    def rank(self, collective: Gather) -> tuple[int, ...]:
        """Return a key that puts gathers of values without conversions first."""
        return (one_way(_line(collective)),)

    def empty_state(self) -> _RetainedGathers:
        return _RetainedGathers()


@dataclass(frozen=True)
class _RetainedGathers(RetainedCollectives[Gather]):
    """Gathers by participating groups, and by the values whose bits determine their operands."""

    of: dict[tuple[Hashable, HloInstruction], Gather] = field(default_factory=dict)

    def add(self, collective: Gather) -> None:
        who = _members(collective)
        self.of.update(((who, value), collective) for value in bits_of(_line(collective)))

    def derive(self, collective: Gather, b: Builder) -> HloInstruction | None:
        who = _members(collective)
        for value in _line(collective):
            if (who, value) in self.of:
                return _made_of(self.of[who, value], value, collective, b)
        return None


def _members(gather: Gather) -> Hashable:
    """Return the groups of an all-gather as a key, without its channel and dimension."""
    attrs = gather.instruction.attrs_as(CollectiveAttrs)
    return replace(attrs, dimension=None, channel_id=0 if attrs.channel_id is not None else None)


def _line(gather: Gather) -> list[HloInstruction]:
    return line_of(gather.operand, _REARRANGING)


def _made_of(earlier: Gather, common: HloInstruction, later: Gather, b: Builder) -> HloInstruction:
    """Return the result of ``later``, computed from the result of ``earlier``: undo the ops down to the ``common``
    value, then apply those of ``later``.
    """
    have = _Gathered(b, earlier.instruction, earlier.operand, earlier.dimension, earlier.count)
    back = _line(earlier)
    for op in back[: back.index(common)]:
        have = have.undone(op)
    forth = _line(later)
    for op in reversed(forth[: forth.index(common)]):
        have = have.formed(op)
    return moved_members(b, have.value, have.count, have.dimension, later.dimension)


@dataclass(frozen=True)
class _Gathered:
    """A ``value`` that equals an all-gather of ``part`` along ``dimension``."""

    builder: Builder
    value: HloInstruction
    part: HloInstruction
    dimension: int
    count: int

    def formed(self, op: HloInstruction) -> _Gathered:
        """Return the gathered value of ``op``, an instruction on ``part``."""
        if op.opcode is Opcode.CONVERT:
            value = self.builder.convert(self.value, op.array_shape.element_type)
            return replace(self, value=value, part=op)
        if op.opcode is Opcode.TRANSPOSE:
            return self._transposed(op.attrs_as(DimensionsAttrs).dimensions, op)
        return self._reshaped(op)

    def undone(self, op: HloInstruction) -> _Gathered:
        """Return the gathered value of the operand of ``op``, which is ``part``."""
        source = op.operand(0)
        if op.opcode is Opcode.TRANSPOSE:
            return self._transposed(undoing_order(op), source)
        return self._reshaped(source)

    def _transposed(self, order: tuple[int, ...], part: HloInstruction) -> _Gathered:
        value = self.builder.transpose(self.value, order)
        return replace(self, value=value, part=part, dimension=order.index(self.dimension))

    def _reshaped(self, part: HloInstruction) -> _Gathered:
        """Reshape the gathered value. The members stay at their dimension if one begins there in ``part``, else they
        move to the front.
        """
        if part.dims == self.part.dims:
            return replace(self, part=part)
        before = math.prod(self.part.dims[: self.dimension])
        at = next((d for d in range(len(part.dims)) if math.prod(part.dims[:d]) == before), None)
        if at is None:
            front = moved_members(self.builder, self.value, self.count, self.dimension, 0)
            return replace(self, value=front, dimension=0)._reshaped(part)
        dims = (*part.dims[:at], part.dims[at] * self.count, *part.dims[at + 1 :])
        return replace(self, value=self.builder.reshape(self.value, dims), part=part, dimension=at)
