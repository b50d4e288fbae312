"""Concatenations and pads: which part is read depends on the index, so a loop over one of them is cut into pieces.

Over a piece of the index space whose elements all come from one operand, the operation is a view of that operand, as a
slice that starts before it. Where a dynamic slice is read, the place of an edge is known when the kernel runs: a piece
is then a range of indices whose ends are computed, maybe an empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import ViewOp, ViewPath, repeated, shifts, through
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, PadAttrs, SliceAttrs
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Range:
    """Of the indices of ``dimension`` those that the scalar ``start``, moved to 0 to ``limit``, moves to ``first`` or
    more and less than ``end``. dimension: None for an index of 0 that no dimension counts.
    """

    dimension: int | None
    start: int
    limit: int
    first: int
    end: int

    def is_of(self, other: Range) -> bool:
        """Whether both say which indices are which others, apart from which these are."""
        return (self.dimension, self.start, self.limit) == (
            other.dimension,
            other.start,
            other.limit,
        )


class CutError(NoEmitterError):
    """The index space has to be cut before index ``at`` of dimension ``dimension``; or range ``within``, there."""

    def __init__(
        self,
        instruction: HloInstruction,
        dimension: int | None,
        at: int,
        within: Range | None = None,
    ) -> None:
        super().__init__(f"{instruction.name} is read on both sides of an edge")
        self.dimension = dimension
        self.at = at
        self.within = within


def is_piecewise(instruction: HloInstruction) -> bool:
    return instruction.opcode in (Opcode.CONCATENATE, Opcode.PAD)


def piece_read(
    instruction: HloInstruction, path: ViewPath, ranges: Sequence[Range] = ()
) -> tuple[HloInstruction, ViewPath]:
    """The operand that a concatenation or pad, seen through ``path``, is made of, and how it is read there.

    ranges: to which the index space is narrowed. CutError where there are several such operands, NoEmitterError where
    no cut across one dimension tells them apart.
    """
    if instruction.opcode is Opcode.CONCATENATE:
        return _concatenated(instruction, path, ranges)
    return _padded(instruction, path, ranges)


def _concatenated(
    instruction: HloInstruction, path: ViewPath, ranges: Sequence[Range]
) -> tuple[HloInstruction, ViewPath]:
    (along,) = instruction.attrs_as(DimensionsAttrs).dimensions
    line = _line(instruction, path, along, ranges)
    start = 0
    for operand in instruction.operands:
        size = operand.dims[along]
        if line.is_within(start, start + size):
            starts = tuple(-start if d == along else 0 for d in range(len(operand.dims)))
            return operand, (_shifted(instruction.dims, starts), *path)
        if line.first < start + size <= line.last:
            raise line.cut(instruction, start + size)
        start += size
    raise NoEmitterError(f"{instruction.name} is read outside of itself")


def _padded(
    instruction: HloInstruction, path: ViewPath, ranges: Sequence[Range]
) -> tuple[HloInstruction, ViewPath]:
    attrs = instruction.attrs_as(PadAttrs)
    operand, value = instruction.operands
    if any(attrs.interior):
        raise NoEmitterError(f"{instruction.name} has padding between elements")
    for d, size in enumerate(operand.dims):
        low = attrs.low[d]
        if low <= 0 and low + size >= instruction.dims[d]:
            continue
        line = _line(instruction, path, d, ranges)
        if line.last < low or line.first >= low + size:
            return value, (repeated(instruction.dims), *path)
        for edge in (low, low + size):
            if line.first < edge <= line.last:
                raise line.cut(instruction, edge)
    starts = tuple(-low for low in attrs.low)
    return operand, (_shifted(instruction.dims, starts), *path)


def _shifted(dims: tuple[int, ...], starts: tuple[int, ...]) -> ViewOp:
    """An array seen with indices that start elsewhere, some of which it may not have: these are not read."""
    limits = tuple(start + size for start, size in zip(starts, dims, strict=True))
    return ViewOp(Opcode.SLICE, dims, SliceAttrs(starts, limits, (1,) * len(dims)))


@dataclass(frozen=True, slots=True)
class _Line:
    """The index along one dimension of what is read, over the index space: ``view`` counts it."""

    view: StridedView

    @property
    def first(self) -> int:
        return self.view.offset + sum(
            min(0, step * (size - 1))
            for size, step in zip(self.view.dims, self.view.strides, strict=True)
        )

    @property
    def last(self) -> int:
        return self.view.offset + sum(
            max(0, step * (size - 1))
            for size, step in zip(self.view.dims, self.view.strides, strict=True)
        )

    def is_within(self, start: int, limit: int) -> bool:
        """Of an empty space, too."""
        return 0 in self.view.dims or (start <= self.first and self.last < limit)

    def cut(self, instruction: HloInstruction, edge: int) -> NoEmitterError:
        """Across the dimension of the longest steps, if the others do not lead over ``edge`` on either side of it."""
        steps = self.view.strides
        d = max(range(len(steps)), key=lambda n: abs(steps[n]) if self.view.dims[n] > 1 else 0)
        step = steps[d]
        least = self.first - min(0, step * (self.view.dims[d] - 1))
        most = self.last - max(0, step * (self.view.dims[d] - 1))
        if step > 0:
            at = -((least - edge) // step)
            apart = most + step * (at - 1) < edge
        else:
            at = (most - edge) // -step + 1
            apart = least + step * (at - 1) >= edge
        if not apart:
            return NoEmitterError(f"no one dimension cuts {instruction.name} at its edges")
        return CutError(instruction, d, at)


@dataclass(frozen=True, slots=True)
class _MovedLine:
    """The same where a dynamic slice is read: ``offset`` and what comes into the range."""

    offset: int
    range: Range

    @property
    def first(self) -> int:
        return self.offset + self.range.first

    @property
    def last(self) -> int:
        return self.offset + self.range.end - 1

    def is_within(self, start: int, limit: int) -> bool:
        return start <= self.first and self.last < limit

    def cut(self, instruction: HloInstruction, edge: int) -> NoEmitterError:
        return CutError(instruction, self.range.dimension, edge - self.offset, self.range)


def _line(
    instruction: HloInstruction, path: ViewPath, d: int, ranges: Sequence[Range]
) -> _Line | _MovedLine:
    ones = tuple(int(other == d) for other in range(len(instruction.dims)))
    straight = StridedView(PrimitiveType.U8, instruction.dims, ones)
    view = through(path, straight)
    if view is None:
        raise NoEmitterError(f"no strides say where {instruction.name} is read")
    moved = shifts(path, straight)
    if not moved or 0 in view.dims:
        return _Line(view)
    along = [n for n, size in enumerate(view.dims) if size > 1 and view.strides[n]]
    steps = [moved[0].stride, *(view.strides[n] for n in along)]
    if len(moved) > 1 or len(along) > 1 or steps != [1] * len(steps):
        raise NoEmitterError(f"no one step says where {instruction.name} is read")
    size = view.dims[along[0]] if along else 1
    every = Range(
        along[0] if along else None, moved[0].start, moved[0].limit, 0, size + moved[0].limit
    )
    return _MovedLine(view.offset, next(filter(every.is_of, ranges), every))
