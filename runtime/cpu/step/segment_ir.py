"""Native code that runs a table of thunks: stores each one's number, calls its function, and goes on.

Loops and branches are rows that say how many rows away to go on, so nothing nests, and a table is parts put one after
the other. A collective over shared memory is two rows, its start and its wait, on the header of its steps
(shared_memory_ir.py); a wait for who is late lets everything in flight go on (in_flight_ir.py) and leaves the table.
So does a row that needs Python, and every so many jumps, since signals reach Python code alone. The table remembers
where to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Protocol

from runtime.codegen.ir.record_words import WORDS
from runtime.cpu.collective.shared_memory_ir import step_interpreter_ir
from runtime.cpu.kernels.native_call import NativeCall
from runtime.cpu.step.in_flight_ir import ADVANCE_ALL, FLIGHTS_IR, LAND, LOOK_AROUND, TAKE_OFF
from runtime.cpu.step.spin_wait_ir import WAITS
from runtime.cpu.step.table_record import (
    HEADER_WORDS,
    LOG,
    LOG_WORDS,
    OFFER,
    OUTCOME,
    POSITION,
    ROW,
    ROWS,
    STAMP_WORDS,
)
from runtime.cpu.step.work_sharing_ir import SHARE, SHARE_IR, Share

FUNCTION = "spmd_segment"
#: Jumps after which the code returns; a trip of a loop is one.
JUMPS = 128

#: In place of a function's address.
_JUMP, _UNLESS, _UNLESS_EQUAL, _PYTHON, _START, _AWAIT, _STAMP, _SHARE, _PROGRESS = range(9)
_ROW_WORDS = 5


class Stop(IntEnum):
    """Why a table was left."""

    FINISHED = 0
    BLOCKED = 1  # at a wait for who has not come
    PYTHON = 2  # at a row that Python does
    INTERRUPTED = 3  # after many jumps: go on
    FAILED = 4  # at a collective's row, see OUTCOME


class HasSteps(Protocol):
    """A collective whose steps native code runs."""

    @property
    def address(self) -> int:
        """The address of the header of its steps, once it is connected."""
        ...


class HasTime(Protocol):
    """Source of a timestamp."""

    @property
    def address(self) -> int:
        """The address of the nanoseconds to record; 0 for the present time."""
        ...

    def __call__(self) -> None:
        """Leave it where there is no room in the log."""
        ...


class Sharing:
    """Target of a row of pieces: their shared work, once their code is compiled."""

    def __init__(self, pieces: Sequence[Sequence[NativeCall]]) -> None:
        self._pieces = pieces

    @cached_property
    def _share(self) -> Share:
        return Share(self._pieces)

    @property
    def address(self) -> int:
        return self._share.address


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """Words of a row: ``number`` is the thunk's, ``function`` a native call's, of which ``record`` is the record.

    away: rows from this one to the one that a jump goes to.
    target: what Python does, or the collective.
    within: for errors: what the row is a part of, from the inside out.
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
        return SegmentRow(number, _JUMP, 0, away)

    @staticmethod
    def unless(number: int, predicate: int, away: int) -> SegmentRow:
        """Jump where the byte at address ``predicate`` is 0."""
        return SegmentRow(number, _UNLESS, predicate, away)

    @staticmethod
    def unless_equal(number: int, selector: int, value: int, away: int) -> SegmentRow:
        """Jump where the 32-bit number at address ``selector`` is not ``value``."""
        return SegmentRow(number, _UNLESS_EQUAL, selector, away, value)

    @staticmethod
    def python(number: int, target: object) -> SegmentRow:
        """Leave the table, for ``target``."""
        return SegmentRow(number, _PYTHON, 0, target=target)

    @staticmethod
    def start(number: int, collective: HasSteps) -> SegmentRow:
        return SegmentRow(number, _START, 0, target=collective)

    @staticmethod
    def wait(number: int, collective: HasSteps) -> SegmentRow:
        return SegmentRow(number, _AWAIT, 0, target=collective)

    @staticmethod
    def stamp(number: int, mark: int, stamp: HasTime) -> SegmentRow:
        """Leave ``mark`` and the time in the table's log; leave the table for ``stamp`` where it is full."""
        return SegmentRow(number, _STAMP, 0, value=mark, target=stamp)

    @staticmethod
    def share(number: int, pieces: Sequence[Sequence[NativeCall]]) -> SegmentRow:
        """Lists of calls that do not depend on each other, for all threads that share the device's work."""
        return SegmentRow(number, _SHARE, 0, target=Sharing(pieces))

    @staticmethod
    def progress(number: int) -> SegmentRow:
        """Let everything in flight go on that can."""
        return SegmentRow(number, _PROGRESS, 0)

    def looking(self) -> SegmentRow:
        """The row, which does the same between pieces if it has some."""
        return replace(self, value=1) if self.is_share else self

    def inside(self, what: str) -> SegmentRow:
        """The row as a part of ``what``, which is only ever said of rows that may fail."""
        return self if self.target is None else replace(self, within=(*self.within, what))

    @property
    def needs_python(self) -> bool:
        return self.function == _PYTHON

    @property
    def is_start(self) -> bool:
        """Whether the row starts a collective that native code runs."""
        return self.function == _START

    @property
    def is_share(self) -> bool:
        """Several threads may do it."""
        return self.function == _SHARE

    @property
    def looks(self) -> bool:
        """Whether everything in flight goes on at its end, or soon before."""
        return self.function == _PROGRESS or (self.is_share and self.value != 0)

    @property
    def words(self) -> tuple[int, int, int, int, int]:
        """Its collective must be connected. Waits for the code of its call."""
        record = self.record
        if isinstance(self.function, NativeCall):
            return self.function.function, record, self.number, self.away, self.value
        if self.function in (_START, _AWAIT, _STAMP, _SHARE):
            record = self.target.address  # type: ignore[attr-defined]
        return self.function, record, self.number, self.away, self.value


_IR = f"""
define i64 @{FUNCTION}(ptr %table, i64 %spins) {{
entry:
  %count = call i64 @word(ptr %table, i64 {ROWS})
  %position = call ptr @pointer(ptr %table, i64 {POSITION})
  %started = getelementptr i64, ptr %position, i64 1
  %row_slot = getelementptr i64, ptr %table, i64 {ROW}
  %outcome_slot = getelementptr i64, ptr %table, i64 {OUTCOME}
  %offer = call ptr @pointer(ptr %table, i64 {OFFER})
  %rows = getelementptr i64, ptr %table, i64 {HEADER_WORDS}
  %first = load i64, ptr %row_slot
  br label %look
look:
  %i = phi i64 [ %first, %entry ], [ %following, %next ], [ %there, %jumped ]
  %jumps = phi i64 [ {JUMPS}, %entry ], [ %jumps, %next ], [ %left, %jumped ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %row, label %finished
row:
  %r = getelementptr [{_ROW_WORDS} x i64], ptr %rows, i64 %i
  %function_word = call i64 @word(ptr %r, i64 0)
  %record = call ptr @pointer(ptr %r, i64 1)
  %number = call i64 @word(ptr %r, i64 2)
  store atomic i64 %number, ptr %position monotonic, align 8
  %following = add i64 %i, 1
  switch i64 %function_word, label %call [
    i64 {_JUMP}, label %jump
    i64 {_UNLESS}, label %unless
    i64 {_UNLESS_EQUAL}, label %unless_equal
    i64 {_PYTHON}, label %python
    i64 {_START}, label %start
    i64 {_AWAIT}, label %await
    i64 {_STAMP}, label %stamp
    i64 {_SHARE}, label %share
    i64 {_PROGRESS}, label %progress
  ]
call:
  %function = inttoptr i64 %function_word to ptr
  call void %function(ptr %record)
  br label %next
share:
  %looks = call i64 @word(ptr %r, i64 4)
  %is_looking = icmp ne i64 %looks, 0
  %watched = select i1 %is_looking, ptr %table, ptr null
  call void @{SHARE}(ptr %record, ptr %offer, ptr %watched)
  br label %next
unless:
  %byte = load i8, ptr %record
  %is_false = icmp eq i8 %byte, 0
  br i1 %is_false, label %jump, label %next
unless_equal:
  %value = call i64 @word(ptr %r, i64 4)
  %selector = load i32, ptr %record
  %wide = sext i32 %selector to i64
  %differs = icmp ne i64 %wide, %value
  br i1 %differs, label %jump, label %next
stamp:
  %log = call ptr @pointer(ptr %table, i64 {LOG})
  %stamps = call i64 @word(ptr %log, i64 0)
  %room = call i64 @word(ptr %log, i64 1)
  %is_full = icmp uge i64 %stamps, %room
  br i1 %is_full, label %python, label %take
take:
  %entries = getelementptr i64, ptr %log, i64 {LOG_WORDS}
  %entry_slot = getelementptr [{STAMP_WORDS} x i64], ptr %entries, i64 %stamps
  %mark = call i64 @word(ptr %r, i64 4)
  store i64 %mark, ptr %entry_slot
  %time_slot = getelementptr i64, ptr %entry_slot, i64 1
  %is_known = icmp ne ptr %record, null
  br i1 %is_known, label %known, label %present
known:
  %noted = load i64, ptr %record
  br label %taken
present:
  %now = call i64 @now()
  br label %taken
taken:
  %time = phi i64 [ %noted, %known ], [ %now, %present ]
  store i64 %time, ptr %time_slot
  %stamps_taken = add i64 %stamps, 1
  store i64 %stamps_taken, ptr %log
  br label %next
start:
  store atomic i64 %number, ptr %started monotonic, align 8
  %begun = call i64 @spmd_start(ptr %record)
  switch i64 %begun, label %failed [
    i64 0, label %next
    i64 1, label %take_off
  ]
take_off:
  call void @{TAKE_OFF}(ptr %table, ptr %record)
  br label %next
await:
  %come = call i64 @spmd_advance(ptr %record, i64 %spins)
  switch i64 %come, label %failed [
    i64 0, label %land
    i64 1, label %late
  ]
land:
  call void @{LAND}(ptr %table, ptr %record)
  br label %next
late:
  call void @{ADVANCE_ALL}(ptr %table)
  br label %blocked
progress:
  call void @{LOOK_AROUND}(ptr %table)
  br label %next
next:
  br label %look
jump:
  %away = call i64 @word(ptr %r, i64 3)
  %there = add i64 %i, %away
  %left = sub i64 %jumps, 1
  %again = icmp ne i64 %left, 0
  br i1 %again, label %jumped, label %interrupted
jumped:
  br label %look
interrupted:
  store i64 %there, ptr %row_slot
  ret i64 {Stop.INTERRUPTED}
blocked:
  store i64 %i, ptr %row_slot
  ret i64 {Stop.BLOCKED}
python:
  store i64 %i, ptr %row_slot
  ret i64 {Stop.PYTHON}
failed:
  %why = phi i64 [ %begun, %start ], [ %come, %await ]
  store i64 %why, ptr %outcome_slot
  store i64 %i, ptr %row_slot
  ret i64 {Stop.FAILED}
finished:
  store i64 %count, ptr %row_slot
  ret i64 {Stop.FINISHED}
}}
"""

SEGMENT_IR = "\n".join([WORDS, WAITS, step_interpreter_ir("internal"), FLIGHTS_IR, SHARE_IR, _IR])
"""A module with ``FUNCTION``: takes a table's address and how often to look at who is late; returns a Stop."""
