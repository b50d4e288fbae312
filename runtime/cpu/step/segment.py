"""Segments: what thunks do as rows of one table, which native code runs (cpu/step/segment_ir.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from collectives.communicator.interface import BoundCollective
from runtime.cpu.kernels.native_call import NativeAction, SharedAction
from runtime.cpu.step.segment_ir import HasTime, SegmentRow
from spmd.literal import NDArray

#: Something ready to be done, on arrays that were bound to it before.
Action: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class Segment:
    """Rows, and what the addresses in them need to be kept ``alive``. Loops and branches lie within the rows."""

    rows: tuple[SegmentRow, ...] = ()
    alive: tuple[object, ...] = field(default=(), repr=False)

    @property
    def is_native(self) -> bool:
        """Whether no row needs Python unless something is amiss."""
        return not any(row.needs_python for row in self.rows)

    def inside(self, what: str) -> Segment:
        """The same as a part of ``what``, for errors."""
        return Segment(tuple(row.inside(what) for row in self.rows), self.alive)


@dataclass(frozen=True)
class PythonWait:
    """The wait for a collective that Python carries: to be asked about where other devices share the thread."""

    bound: BoundCollective

    def __call__(self) -> None:
        self.bound.wait()


class Stamps(HasTime, Protocol):
    """Recorder of an event of a thunk (runtime/timeline/timestamps.py)."""

    @property
    def mark(self) -> int: ...


def stamping(number: int, stamps: Stamps) -> Segment:
    """The row, under thunk ``number``."""
    return Segment((SegmentRow.stamp(number, stamps.mark, stamps),), (stamps,))


def segment_of(number: int, action: Action | Segment) -> Segment:
    """Return the segment of thunk ``number``: native calls are rows, anything else is one row that leaves the table."""
    if isinstance(action, Segment):
        return action
    if isinstance(action, NativeAction):
        rows = tuple(SegmentRow(number, call, call.record) for call in action.calls)
        return Segment(rows, action.calls)
    if isinstance(action, SharedAction):
        row = SegmentRow.share(number, [piece.calls for piece in action.pieces])
        return Segment((row,), (row.target, *(call for p in action.pieces for call in p.calls)))
    return Segment((SegmentRow.python(number, action),))


def either(number: int, flag: NDArray, if_true: Segment, if_false: Segment) -> Segment:
    """The one or the other, for thunk ``number``, as ``flag`` is when they are reached: a pred."""
    behind = (SegmentRow.jump(number, len(if_false.rows) + 1),) if if_false.rows else ()
    choose = SegmentRow.unless(number, flag.ctypes.data, len(if_true.rows) + len(behind) + 1)
    rows = (choose, *if_true.rows, *behind, *if_false.rows)
    return Segment(rows, (flag, *if_true.alive, *if_false.alive))


def joined(segments: Iterable[Segment]) -> Segment:
    """One after the other."""
    parts = tuple(segments)
    return Segment(
        tuple(row for part in parts for row in part.rows),
        tuple(one for part in parts for one in part.alive),
    )
