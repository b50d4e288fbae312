"""Segments: thunks as rows of one table, which native code runs (cpu/step/segment_ir.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from collectives.communicator.interface import BoundCollective
from collectives.communicator.native_collective import NativeCollective
from runtime.cpu.kernels.native_call import NativeAction, NativeCall, SharedAction
from runtime.program.argument_record import Address, Record, Word, record
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray

if TYPE_CHECKING:
    from runtime.cpu.step.recorder import TimestampCallback

#: Indices of a share's words. Counters that all threads update are in other cache lines than the constant words.
CLAIMED, BACK, DONE, COUNT, PIECES = 0, 1, 8, 16, 17

_LINE_WORDS = 8

#: Words of a piece (number of calls, address of the calls) and words of a call (function, record).
PIECE_WORDS, CALL_WORDS = 2, 2


class Share:
    """A share (work_sharing_ir.py), laid out in memory at the first use of ``address``."""

    def __init__(self, pieces: Sequence[Sequence[NativeCall]]) -> None:
        """Create the share of ``pieces``, each a list of calls."""
        self._pieces = pieces
        self._memory: tuple[NDArray, ...] = ()

    @cached_property
    def address(self) -> int:
        """Return the address of the share, after waiting until the code of the calls is compiled."""
        calls = [[(c.function, c.record) for c in piece] for piece in self._pieces]
        records = np.array([word for piece in calls for call in piece for word in call], np.int64)
        size = PIECES + PIECE_WORDS * len(calls)
        data = np.zeros(size + _LINE_WORDS, np.int64)
        start = -data.ctypes.data % (8 * _LINE_WORDS) // 8
        aligned = data[start : start + size]
        aligned[COUNT] = aligned[CLAIMED] = len(calls)
        at = records.ctypes.data
        for number, piece in enumerate(calls):
            index = PIECES + PIECE_WORDS * number
            aligned[index : index + PIECE_WORDS] = len(piece), at
            at += 8 * CALL_WORDS * len(piece)
        self._memory = records, data
        return int(aligned.ctypes.data)


FUNCTION = "spmd_segment"

#: Number of codes that a row can have in place of a function's address.
CODES = 9

JUMP, UNLESS, UNLESS_EQUAL, PYTHON, START, AWAIT, STAMP, SHARED, PROGRESS = range(CODES)


@record
class RowRecord(Record):
    """Row of a table. ``function`` is the address of a native function, or a code.

    ``record`` is the argument of the function or code, ``number`` the number of the row's thunk, ``away`` the distance
    of a jump in rows, and ``value`` the operand of a code.
    """

    function: Word
    record: Address
    number: Word
    away: Word
    value: Word


class Stop(IntEnum):
    """Reason for which native code has left a table."""

    FINISHED = 0
    BLOCKED = 1  # The device waits for ranks that have not arrived.
    PYTHON = 2  # Python must run the row.
    INTERRUPTED = 3  # Signals must be delivered; the caller calls again.
    FAILED = 4  # The collective of the row has failed with STATUS.


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """Row of thunk ``number``. ``function`` is a code, or a native call whose argument is ``record``.

    ``away`` is the distance of a jump in rows, and ``value`` the operand of a code. ``target`` is the callable that
    Python runs, the collective, the share, or the source of a timestamp. ``within`` names, for errors, the row's thunk
    and the sequences around it, from the inside out.
    """

    number: int
    function: int | NativeCall
    record: int
    away: int = 0
    value: int = 0
    target: object = None
    within: tuple[str, ...] = ()

    @staticmethod
    def jump(number: int, away: int) -> SegmentRow:
        """Return a jump by ``away`` rows."""
        return SegmentRow(number, JUMP, 0, away)

    @staticmethod
    def unless(number: int, predicate: int, away: int) -> SegmentRow:
        """Return a jump by ``away`` rows if the byte at address ``predicate`` is 0."""
        return SegmentRow(number, UNLESS, predicate, away)

    @staticmethod
    def unless_equal(number: int, selector: int, value: int, away: int) -> SegmentRow:
        """Return a jump by ``away`` rows if the s32 at address ``selector`` is not ``value``."""
        return SegmentRow(number, UNLESS_EQUAL, selector, away, value)

    @staticmethod
    def python(number: int, target: object) -> SegmentRow:
        """Return a row at which native code leaves the table, so that Python calls ``target``."""
        return SegmentRow(number, PYTHON, 0, target=target)

    @staticmethod
    def start(number: int, collective: NativeCollective) -> SegmentRow:
        """Return a row that starts ``collective``."""
        return SegmentRow(number, START, 0, target=collective)

    @staticmethod
    def wait(number: int, collective: NativeCollective) -> SegmentRow:
        """Return a row that waits for ``collective``."""
        return SegmentRow(number, AWAIT, 0, target=collective)

    @staticmethod
    def stamp(number: int, mark: int, stamp: TimestampCallback) -> SegmentRow:
        """Return a row that records ``mark`` and the time of ``stamp`` in the log.

        Python calls ``stamp`` instead if the log is full.
        """
        return SegmentRow(number, STAMP, 0, value=mark, target=stamp)

    @staticmethod
    def share(number: int, pieces: Sequence[Sequence[NativeCall]]) -> SegmentRow:
        """Return a row of independent ``pieces``, each a list of calls, which the threads of the device share."""
        return SegmentRow(number, SHARED, 0, target=Share(pieces))

    @staticmethod
    def progress(number: int) -> SegmentRow:
        """Return a row that polls all collectives in flight."""
        return SegmentRow(number, PROGRESS, 0)

    def polling(self) -> SegmentRow:
        """Return the row with polls of the collectives in flight between its pieces, if it is a share."""
        return replace(self, value=1) if self.is_share else self

    def inside(self, what: str) -> SegmentRow:
        """Return the row as a part of ``what``, which errors then name. A row that cannot fail stays unchanged."""
        return self if self.target is None else replace(self, within=(*self.within, what))

    @property
    def needs_python(self) -> bool:
        """Return whether Python runs the row."""
        return self.function == PYTHON

    @property
    def is_start(self) -> bool:
        """Return whether the row starts a collective that native code runs."""
        return self.function == START

    @property
    def is_share(self) -> bool:
        """Return whether several threads may run the row."""
        return self.function == SHARED

    @property
    def polls(self) -> bool:
        """Return whether the row polls the collectives in flight."""
        return self.function == PROGRESS or (self.is_share and self.value != 0)

    @property
    def fields(self) -> tuple[int, int, int, int, int]:
        """Return the fields of the row's RowRecord.

        The row's collective must be connected. The property waits until the code of the row's call is compiled.
        """
        record = self.record
        if isinstance(self.function, NativeCall):
            return self.function.function, record, self.number, self.away, self.value
        if self.function in (START, AWAIT, STAMP, SHARED):
            record = self.target.address  # type: ignore[attr-defined]
        return self.function, record, self.number, self.away, self.value


#: Callable whose arrays are bound.
Action: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class Segment:
    """Rows of a table, including those of loops and branches.

    ``alive`` owns the memory whose addresses the rows contain.
    """

    rows: tuple[SegmentRow, ...] = ()
    alive: tuple[object, ...] = field(default=(), repr=False)

    @property
    def is_native(self) -> bool:
        """Return whether native code alone runs the rows unless a collective fails."""
        return not any(row.needs_python for row in self.rows)

    def inside(self, what: str) -> Segment:
        """Return the segment as a part of ``what``, which the errors of its rows then name."""
        return Segment(tuple(row.inside(what) for row in self.rows), self.alive)


@dataclass(frozen=True)
class PythonWait:
    """Wait for a collective that Python runs. If other devices share the thread, the collective is polled instead."""

    bound: BoundCollective

    def __call__(self) -> None:
        self.bound.wait()


def recording(number: int, recorder: TimestampCallback) -> Segment:
    """Return a row of thunk ``number`` that records the event of ``recorder``."""
    return Segment((SegmentRow.stamp(number, recorder.mark, recorder),), (recorder,))


def segment_of(number: int, action: Action | Segment) -> Segment:
    """Return the segment of thunk ``number`` that runs ``action``.

    Every native call becomes a row. Any other callable becomes one row that Python runs.
    """
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
    """Return a branch of thunk ``number``, which reads the pred ``flag`` when it is reached."""
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


# ---- points at which a computing device polls collectives in flight
#
# Messages make progress only while MPI is called, and native code calls it at polling points. A program has polling
# points only while a collective is in flight that needs them, and the predicted time between two is at most
# INTERVAL_SECONDS. A kernel that takes longer is cut as for several threads (runtime/cpu/sharing), with a poll after
# each piece. A poll soon after another one, as in a loop of short trips, does nothing (cpu/step/in_flight_ir.py).


#: Longest predicted time between two polls. At 10 Gbit/s 250 KB arrive in this time, about as many as a TCP connection
#: buffers before the sender pauses. A poll takes 1 % of it if nothing has arrived, else 3 % (MPICH over TCP).
INTERVAL_SECONDS = 200e-6


class ProgressPoints:
    """Insertion of polling points while a device's thunks are prepared in schedule order.

    ``since`` is an upper bound on the predicted seconds from the last poll to the current point of the program.
    """

    def __init__(self, overlaps: bool = True) -> None:
        """Begin without collectives. ``overlaps`` tells whether the device computes while collectives are in flight."""
        self.since = 0.0
        self._overlaps = overlaps
        self._flying: set[str] = set()

    @property
    def are_needed(self) -> bool:
        """Return whether a collective is in flight that makes progress only while it is polled.

        The start and the done of a collective are in the same computation, so the same collectives are in flight at the
        begin and at the end of a loop's body and of a conditional's branches.
        """
        return self._overlaps and bool(self._flying)

    def start(self, name: str) -> None:
        """Note that the collective ``name``, which needs polls, is in flight from here on. Its start polls it."""
        if not self._flying:
            self.since = 0.0
        self._flying.add(name)

    def finish(self, name: str) -> None:
        """Note that the collective ``name`` is no longer in flight."""
        self._flying.discard(name)

    def pieces(self, seconds: float) -> int:
        """Return into how many pieces a kernel that takes ``seconds`` is cut so that polls come often enough."""
        return max(1, math.ceil(seconds / INTERVAL_SECONDS)) if self.are_needed else 1

    def around(self, number: int, seconds: float, segment: Segment) -> Segment:
        """Return ``segment``, which takes ``seconds``, with polls between its pieces and, if one is due, before it."""
        own = Segment(tuple(row.polling() for row in segment.rows), segment.alive)
        is_cut = any(row.polls for row in own.rows)
        alone = seconds / self.pieces(seconds) if is_cut else seconds
        if self.since > 0.0 and self.since + alone > INTERVAL_SECONDS:
            own = joined((self.look(number), own))
        self.since = 0.0 if is_cut else self.since + seconds
        return own

    def look(self, number: int) -> Segment:
        """Return a row of thunk ``number`` that polls the collectives in flight."""
        self.since = 0.0
        return Segment((SegmentRow.progress(number),))
