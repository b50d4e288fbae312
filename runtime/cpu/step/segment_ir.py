"""Native code that runs a table of thunks: it stores each one's number and calls its function.

Loops and branches are rows with a relative jump distance, so nothing nests, and tables can be concatenated. A
collective over shared memory is two rows, its start and its wait, on the header of its steps (shared_memory_ir.py). A
wait that blocks advances all collectives in flight (in_flight_ir.py) and leaves the table. So does a row that needs
Python, and every JUMPS-th jump, since signals are delivered to Python code only. The table stores its current row.
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
from runtime.cpu.step.in_flight_ir import (
    ADVANCE_ALL,
    ENTER_IN_FLIGHT,
    LEAVE_IN_FLIGHT,
    LOOK_AROUND,
    add_in_flight_list,
)
from runtime.cpu.step.table_record import (
    HEADER_WORDS,
    LOG_WORDS,
    ROW,
    STATUS,
    TIMESTAMP_WORDS,
    TableRecord,
)
from runtime.cpu.step.work_sharing_ir import SHARE, Share, add_shares

FUNCTION = "spmd_segment"
#: Jumps after which the code returns; a trip of a loop is one.
JUMPS = 128

#: Codes in place of a function's address.
_CODES = 9
_JUMP, _UNLESS, _UNLESS_EQUAL, _PYTHON, _START, _AWAIT, _STAMP, _SHARE, _PROGRESS = range(_CODES)


@record
class RowRecord(Record):
    """Row of a table: a function's address or a code, its record, the thunk's number; a jump's distance and operand."""

    function: Word
    record: Address
    number: Word
    away: Word
    value: Word


_ROW = f"[{word_count(RowRecord)} x i64]"


class Stop(IntEnum):
    """Why a table was left."""

    FINISHED = 0
    BLOCKED = 1  # at a wait for late ranks
    PYTHON = 2  # at a row that Python runs
    INTERRUPTED = 3  # after JUMPS jumps: call again
    FAILED = 4  # at a collective's row, see STATUS


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
        """Record the timestamp in Python, when the log is full."""
        ...


class LazyShare:
    """Share that is made at the first use of its address, which waits for the code of its pieces."""

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
    """Row of thunk ``number``: ``function`` is a code or a native call, whose argument is ``record``.

    away: distance of a jump, in rows.
    target: the callable that Python runs, or the collective.
    within: for errors, the names of the row's thunk and of those around it, from the inside out.
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
        """Return a jump that is taken if the byte at address ``predicate`` is 0."""
        return SegmentRow(number, _UNLESS, predicate, away)

    @staticmethod
    def unless_equal(number: int, selector: int, value: int, away: int) -> SegmentRow:
        """Return a jump that is taken if the 32-bit number at address ``selector`` is not ``value``."""
        return SegmentRow(number, _UNLESS_EQUAL, selector, away, value)

    @staticmethod
    def python(number: int, target: object) -> SegmentRow:
        """Return a row that leaves the table, so that Python calls ``target``."""
        return SegmentRow(number, _PYTHON, 0, target=target)

    @staticmethod
    def start(number: int, collective: HasSteps) -> SegmentRow:
        return SegmentRow(number, _START, 0, target=collective)

    @staticmethod
    def wait(number: int, collective: HasSteps) -> SegmentRow:
        return SegmentRow(number, _AWAIT, 0, target=collective)

    @staticmethod
    def stamp(number: int, mark: int, stamp: HasTime) -> SegmentRow:
        """Return a row that records ``mark`` and the time in the log; if that is full, Python calls ``stamp``."""
        return SegmentRow(number, _STAMP, 0, value=mark, target=stamp)

    @staticmethod
    def share(number: int, pieces: Sequence[Sequence[NativeCall]]) -> SegmentRow:
        """Return a row of independent lists of calls, for all threads that share the device's work."""
        return SegmentRow(number, _SHARE, 0, target=LazyShare(pieces))

    @staticmethod
    def progress(number: int) -> SegmentRow:
        """Return a row that polls all collectives in flight."""
        return SegmentRow(number, _PROGRESS, 0)

    def polling(self) -> SegmentRow:
        """Return the row, which polls between its pieces if it is a share."""
        return replace(self, value=1) if self.is_share else self

    def inside(self, what: str) -> SegmentRow:
        """Return the row as a part of ``what``; rows that cannot fail need no name."""
        return self if self.target is None else replace(self, within=(*self.within, what))

    @property
    def needs_python(self) -> bool:
        return self.function == _PYTHON

    @property
    def is_start(self) -> bool:
        """Return whether the row starts a collective that native code runs."""
        return self.function == _START

    @property
    def is_share(self) -> bool:
        """Return whether several threads may run the row."""
        return self.function == _SHARE

    @property
    def polls(self) -> bool:
        """Return whether the row polls the collectives in flight, at its end or shortly before."""
        return self.function == _PROGRESS or (self.is_share and self.value != 0)

    @property
    def fields(self) -> tuple[int, int, int, int, int]:
        """The fields of the row's RowRecord. Its collective must be connected. Waits for the code of its call."""
        record = self.record
        if isinstance(self.function, NativeCall):
            return self.function.function, record, self.number, self.away, self.value
        if self.function in (_START, _AWAIT, _STAMP, _SHARE):
            record = self.target.address  # type: ignore[attr-defined]
        return self.function, record, self.number, self.away, self.value


def add_segment(module: Module) -> None:
    """Add ``FUNCTION``(table, polls of a wait before it blocks), which returns a Stop."""
    add_step_interpreter(module, "internal")
    add_in_flight_list(module)
    add_shares(module)
    _Segment(module).write()


class _Segment:
    """Writer of ``FUNCTION``: a loop over rows with a switch on their functions."""

    def __init__(self, module: Module) -> None:
        self.f = FunctionWriter(
            FUNCTION, TableRecord, module=module, parameters=("i64",), result="i64"
        )
        self.table, self.spins = self.f.parameters

    def write(self) -> None:
        f, rec = self.f, self.f.record
        count, position, open_share = rec.rows, rec.position, rec.open_share
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
            f.call("void", SHARE, record, open_share, watched)
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
        """Leave the table at this row, where the next call continues."""
        self.table.element("i64", ROW).store(self.row)
        self.f.ret(why)

    def fail(self, status: Int) -> None:
        self.table.element("i64", STATUS).store(status)
        self.stop(Stop.FAILED)

    def stamp(self, time_at: Pointer, full: str) -> None:
        f, log = self.f, self.f.record.log
        count = log.word(0)
        room = f.label()
        f.branch(count.compared("uge", log.word(1)), full, room)
        f.begin(room)
        entry = log.element("i64", LOG_WORDS).element(f"[{TIMESTAMP_WORDS} x i64]", count)
        entry.store(self.number.value)
        with f.when(time_at.is_null()) as branch:
            present = now(f)
            branch.otherwise()
            noted = time_at.word()
        entry.element("i64", 1).store(branch.merged(present, noted))
        log.store(count + 1)
        f.jump(self.next)

    def start(self, header: Pointer) -> None:
        f = self.f
        begun = f.call("i64", "spmd_start", header)
        with f.when(begun.equals(RunStatus.COMPLETE)):
            f.jump(self.next)
        with f.when(begun.equals(RunStatus.BLOCKED)):
            f.call("void", ENTER_IN_FLIGHT, self.table, header)
            f.jump(self.next)
        self.fail(begun)

    def wait(self, header: Pointer) -> None:
        f = self.f
        come = f.call("i64", "spmd_advance", header, self.spins)
        with f.when(come.equals(RunStatus.COMPLETE)):
            f.call("void", LEAVE_IN_FLIGHT, self.table, header)
            f.jump(self.next)
        with f.when(come.equals(RunStatus.BLOCKED)):
            f.call("void", ADVANCE_ALL, self.table)
            self.stop(Stop.BLOCKED)
        self.fail(come)
