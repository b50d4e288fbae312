"""Segments: thunks as rows of one table, which native code runs (cpu/step/segment_ir.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from collectives.communicator.interface import BoundCollective
from runtime.cpu.kernels.native_call import NativeAction, SharedAction
from runtime.cpu.step.segment_ir import HasTime, SegmentRow
from spmd.literal import NDArray

#: Callable with bound arrays.
Action: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class Segment:
    """Rows, which include loops and branches; ``alive``: the objects that own the addresses in them."""

    rows: tuple[SegmentRow, ...] = ()
    alive: tuple[object, ...] = field(default=(), repr=False)

    @property
    def is_native(self) -> bool:
        """Return whether no row needs Python, failures apart."""
        return not any(row.needs_python for row in self.rows)

    def inside(self, what: str) -> Segment:
        """Return the segment as a part of ``what``, which errors name."""
        return Segment(tuple(row.inside(what) for row in self.rows), self.alive)


@dataclass(frozen=True)
class PythonWait:
    """Wait for a collective that Python runs. It is polled if other devices share the thread."""

    bound: BoundCollective

    def __call__(self) -> None:
        self.bound.wait()


class TimestampRecorder(HasTime, Protocol):
    """Recorder of an event of a thunk (runtime/timeline/timestamps.py)."""

    @property
    def mark(self) -> int: ...


def recording(number: int, recorder: TimestampRecorder) -> Segment:
    """Return a row of thunk ``number`` that records a timestamp."""
    return Segment((SegmentRow.stamp(number, recorder.mark, recorder),), (recorder,))


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
    """Return a branch of thunk ``number`` on ``flag``, a pred that is read when the branch is reached."""
    behind = (SegmentRow.jump(number, len(if_false.rows) + 1),) if if_false.rows else ()
    choose = SegmentRow.unless(number, flag.ctypes.data, len(if_true.rows) + len(behind) + 1)
    rows = (choose, *if_true.rows, *behind, *if_false.rows)
    return Segment(rows, (flag, *if_true.alive, *if_false.alive))


def joined(segments: Iterable[Segment]) -> Segment:
    """Concatenate ``segments``."""
    parts = tuple(segments)
    return Segment(
        tuple(row for part in parts for row in part.rows),
        tuple(one for part in parts for one in part.alive),
    )
