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

from collectives.communicator.steps.engine import RunStatus
from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record, word_count
from runtime.codegen.ir.values import Pointer
from runtime.cpu.collective.shared_memory_ir import add_step_interpreter
from runtime.cpu.kernels.native_call import NativeCall
from runtime.cpu.step.clock_ir import now
from runtime.cpu.step.in_flight_ir import ADVANCE_ALL, LAND, LOOK_AROUND, TAKE_OFF, add_flights
from runtime.cpu.step.table_record import (
    HEADER_WORDS,
    LOG_WORDS,
    OUTCOME,
    ROW,
    STAMP_WORDS,
    TableRecord,
)
from runtime.cpu.step.work_sharing_ir import SHARE, Share, add_shares

FUNCTION = "spmd_segment"
#: Jumps after which the code returns; a trip of a loop is one.
JUMPS = 128

#: In place of a function's address.
_CODES = 9
_JUMP, _UNLESS, _UNLESS_EQUAL, _PYTHON, _START, _AWAIT, _STAMP, _SHARE, _PROGRESS = range(_CODES)


@record
class RowRecord(Record):
    """Row of a table: a function's address or a code, its record, the thunk's number; for jumps where to, and why."""

    function: Word
    record: Address
    number: Word
    away: Word
    value: Word


_ROW = f"[{word_count(RowRecord)} x i64]"


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


def add_segment(module: Module) -> None:
    """Add ``FUNCTION``, which takes a table's address and how often to look at who is late; it returns a Stop."""
    add_step_interpreter(module, "internal")
    add_flights(module)
    add_shares(module)
    _Segment(module).write()


class _Segment:
    """Writes ``FUNCTION``: a loop over rows, whose first words say what they do."""

    def __init__(self, module: Module) -> None:
        self.f = FunctionWriter(
            FUNCTION, TableRecord, module=module, parameters=("i64",), result="i64"
        )
        self.table, self.spins = self.f.parameters

    def write(self) -> None:
        f, rec = self.f, self.f.record
        count, position, offer = rec.rows, rec.position, rec.offer
        rows = self.table.element("i64", HEADER_WORDS)
        with f.repeat(rec.row, JUMPS) as rounds:
            i, jumps = rounds.values
            rounds.leave(i.compared("uge", count))
            self.row, self.number = i, f.view(RowRecord, rows.element(_ROW, i))
            function, record, number = self.number.function, self.number.record, self.number.number
            position.store(number, order="monotonic")
            following = i + 1
            self.next = f.label("n")
            cases, call = f.switch(function, _CODES)
            f.begin(call)
            f.call("void", f.append(f"inttoptr i64 {function} to ptr"), record)
            f.jump(self.next)
            f.begin(cases[_SHARE])
            watched = self.table.or_null(self.number.value.differs(0))
            f.call("void", SHARE, record, offer, watched)
            f.jump(self.next)
            f.begin(cases[_UNLESS])
            f.branch(record.load("i8").equals(0), cases[_JUMP], self.next)
            f.begin(cases[_UNLESS_EQUAL])
            selector = record.load("i32").resized("i64", signed=True)
            f.branch(selector.differs(self.number.value), cases[_JUMP], self.next)
            f.begin(cases[_STAMP])
            self.stamp(record, cases[_PYTHON])
            f.begin(cases[_START])
            position.element("i64", 1).store(number, order="monotonic")
            self.start(record)
            f.begin(cases[_AWAIT])
            self.wait(record)
            f.begin(cases[_PROGRESS])
            f.call("void", LOOK_AROUND, self.table)
            f.jump(self.next)
            f.begin(cases[_PYTHON])
            self.stop(Stop.PYTHON)
            f.begin(self.next)
            rounds.again(following, jumps)
            f.begin(cases[_JUMP])
            there, left = i + self.number.away, jumps - 1
            with f.when(left.differs(0)):
                rounds.again(there, left)
            self.table.element("i64", ROW).store(there)
            f.ret(Stop.INTERRUPTED)
        self.table.element("i64", ROW).store(count)
        f.ret(Stop.FINISHED)
        f.finish()

    def stop(self, why: Stop) -> None:
        """Leave the table, to go on with this row."""
        self.table.element("i64", ROW).store(self.row)
        self.f.ret(why)

    def fail(self, outcome: Int) -> None:
        self.table.element("i64", OUTCOME).store(outcome)
        self.stop(Stop.FAILED)

    def stamp(self, time_at: Pointer, full: str) -> None:
        f, log = self.f, self.f.record.log
        stamps = log.word(0)
        room = f.label()
        f.branch(stamps.compared("uge", log.word(1)), full, room)
        f.begin(room)
        entry = log.element("i64", LOG_WORDS).element(f"[{STAMP_WORDS} x i64]", stamps)
        entry.store(self.number.value)
        with f.when(time_at.is_null()) as branch:
            present = now(f)
            branch.otherwise()
            noted = time_at.word()
        entry.element("i64", 1).store(branch.merged(present, noted))
        log.store(stamps + 1)
        f.jump(self.next)

    def start(self, header: Pointer) -> None:
        f = self.f
        begun = f.call("i64", "spmd_start", header)
        with f.when(begun.equals(RunStatus.COMPLETE)):
            f.jump(self.next)
        with f.when(begun.equals(RunStatus.BLOCKED)):
            f.call("void", TAKE_OFF, self.table, header)
            f.jump(self.next)
        self.fail(begun)

    def wait(self, header: Pointer) -> None:
        f = self.f
        come = f.call("i64", "spmd_advance", header, self.spins)
        with f.when(come.equals(RunStatus.COMPLETE)):
            f.call("void", LAND, self.table, header)
            f.jump(self.next)
        with f.when(come.equals(RunStatus.BLOCKED)):
            f.call("void", ADVANCE_ALL, self.table)
            self.stop(Stop.BLOCKED)
        self.fail(come)
