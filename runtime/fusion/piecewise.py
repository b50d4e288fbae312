"""Concatenations and pads: the index decides which operand is read, so a loop over them is cut into pieces.

In a piece whose elements all come from one operand, the operation is a view of that operand: a slice that may start
before its first element. If a dynamic slice reads the operation, the position of an edge is known at run time only; the
piece is then a range of indices whose ends are computed and which may be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import ViewOp, ViewPath, repeated, shifts, through
from runtime.program.strides import Range, StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs, PadAttrs, SliceAttrs
from spmd.shape import PrimitiveType


class CutError(NoEmitterError):
    """Raised if the index space, or its range ``within``, must be cut at index ``at`` of ``dimension``."""

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
    """Return whether the index decides which operand of ``instruction`` is read."""
    return instruction.opcode in (Opcode.CONCATENATE, Opcode.PAD)


def piece_read(
    instruction: HloInstruction, path: ViewPath, ranges: Sequence[Range] = ()
) -> tuple[HloInstruction, ViewPath]:
    """Return the one operand that a concatenation or pad consists of over the index space, and the path to it.

    ``path`` is the path of the concatenation or pad, and ``ranges`` narrow the index space. Raises CutError if several
    operands are read, and NoEmitterError if no cut across one dimension separates them.
    """
    if instruction.opcode is Opcode.CONCATENATE:
        return _concatenated(instruction, path, ranges)
    return _padded(instruction, path, ranges)


def _concatenated(
    instruction: HloInstruction, path: ViewPath, ranges: Sequence[Range]
) -> tuple[HloInstruction, ViewPath]:
    """Return the operand of a concatenation that is read, and the path to it (see ``piece_read``)."""
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
    """Return the operand of a pad that is read, and the path to it (see ``piece_read``)."""
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
    """Return a slice at ``starts``, which may extend beyond the array; the caller never reads the elements outside."""
    limits = tuple(start + size for start, size in zip(starts, dims, strict=True))
    return ViewOp(Opcode.SLICE, dims, SliceAttrs(starts, limits, (1,) * len(dims)))


class _Line:
    """Indices along one dimension of the array that is read: the linear function ``view`` of the loop's index.

    ``first`` and ``last`` are the least and the largest of these indices.
    """

    def __init__(self, view: StridedView) -> None:
        self.view = view
        self.first = self.last = view.offset
        for size, step in zip(view.dims, view.strides, strict=True):
            if step > 0:
                self.last += step * (size - 1)
            else:
                self.first += step * (size - 1)

    def is_within(self, start: int, limit: int) -> bool:
        """Return whether all indices are in [``start``, ``limit``), which is true for an empty index space."""
        return 0 in self.view.dims or (start <= self.first and self.last < limit)

    def cut(self, instruction: HloInstruction, edge: int) -> NoEmitterError:
        """Return the error to raise if indices are on both sides of ``edge``.

        It is a CutError across the dimension of the largest stride if each of the two parts then reads on one side of
        ``edge`` only, and otherwise a NoEmitterError.
        """
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
    """Range of an index that a dynamic slice moves: ``offset`` plus an index in ``range``."""

    offset: int
    range: Range

    @property
    def first(self) -> int:
        """Return the least index."""
        return self.offset + self.range.first

    @property
    def last(self) -> int:
        """Return the largest index."""
        return self.offset + self.range.end - 1

    def is_within(self, start: int, limit: int) -> bool:
        """Return whether all indices are in [``start``, ``limit``)."""
        return start <= self.first and self.last < limit

    def cut(self, instruction: HloInstruction, edge: int) -> NoEmitterError:
        """Return the CutError that divides the range at ``edge``."""
        return CutError(instruction, self.range.dimension, edge - self.offset, self.range)


def _line(
    instruction: HloInstruction, path: ViewPath, d: int, ranges: Sequence[Range]
) -> _Line | _MovedLine:
    """Return the indices along dimension ``d`` that a read of ``instruction`` through ``path`` uses.

    Raises NoEmitterError if strides cannot express them.
    """
    straight = _index_along(instruction.dims, d)
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


@lru_cache(maxsize=1024)
def _index_along(dims: tuple[int, ...], d: int) -> StridedView:
    """Return the view of bytes whose offset at each index is the index along dimension ``d``."""
    ones = tuple([int(other == d) for other in range(len(dims))])
    return StridedView(PrimitiveType.U8, dims, ones)
