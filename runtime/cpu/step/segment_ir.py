"""Native code that runs a table of thunks: it stores the number of each thunk and calls its function.

Loops and branches are rows with a relative jump distance, so nothing nests, and tables can be concatenated. A native
collective is two rows, its start and its wait, that refer to the header of its program (shared_memory_ir.py). A wait
that blocks advances all collectives in flight (in_flight_ir.py) and then leaves the table. The code also leaves the
table at a row that needs Python and, because only Python code can handle signals, at a jump if INTERVAL_NANOSECONDS
have passed. The table stores the row at which to continue.
"""

from __future__ import annotations

from collectives.communicator.actions.engine import RunStatus
from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.collective.shared_memory_ir import add_action_interpreter
from runtime.cpu.step.clock_ir import now
from runtime.cpu.step.device_table import (
    HEADER_WORDS,
    LOG_WORDS,
    ROW,
    STATUS,
    TIMESTAMP_WORDS,
    TableRecord,
)
from runtime.cpu.step.in_flight_ir import (
    ADVANCE_ALL,
    ENTER_IN_FLIGHT,
    LEAVE_IN_FLIGHT,
    LOOK_AROUND,
    add_in_flight_list,
)
from runtime.cpu.step.segment import (
    AWAIT,
    CODES,
    FUNCTION,
    JUMP,
    PROGRESS,
    PYTHON,
    SHARED,
    STAMP,
    START,
    UNLESS,
    UNLESS_EQUAL,
    RowRecord,
    Stop,
)
from runtime.cpu.step.work_sharing_ir import SHARE, add_shares
from runtime.program.argument_record import word_count

#: Number of jumps between two reads of the clock. Each trip of a loop jumps at least once.
JUMPS = 32
#: Time after the first read of the clock at which the code returns at a jump. Returning costs microseconds.
INTERVAL_NANOSECONDS = 1_000_000

_ROW = f"[{word_count(RowRecord)} x i64]"


def add_segment(module: Module) -> None:
    """Add ``FUNCTION``(table, number of polls before a wait blocks), which returns a Stop."""
    add_action_interpreter(module, "internal")
    add_in_flight_list(module)
    add_shares(module)
    _Segment(module).write()


class _Segment:
    """Writer of ``FUNCTION``: a loop over rows, which switches on the code or calls the function of each row."""

    def __init__(self, module: Module) -> None:
        self.f = FunctionWriter(
            FUNCTION, TableRecord, module=module, parameters=("i64",), result="i64"
        )
        self.table, self.spins = self.f.parameters

    def write(self) -> None:
        f, rec = self.f, self.f.record
        count, position, open_share = rec.rows, rec.position, rec.open_share
        rows = self.table.element("i64", HEADER_WORDS)
        with f.repeat(rec.row, JUMPS, 0) as rounds:
            i, jumps, until = rounds.values
            rounds.leave(i.compared("uge", count))
            self.row, self.number = i, f.view(RowRecord, rows.element(_ROW, i))
            function, record, number = self.number.function, self.number.record, self.number.number
            position.store(number, order="monotonic")
            following = i + 1
            self.next = f.label("n")
            cases, call = f.switch(function, CODES)
            f.begin(call)
            f.call("void", f.append(f"inttoptr i64 {function} to ptr"), record)
            f.jump(self.next)
            f.begin(cases[SHARED])
            watched = self.table.or_null(self.number.value.differs(0))
            f.call("void", SHARE, record, open_share, watched)
            f.jump(self.next)
            f.begin(cases[UNLESS])
            f.branch(record.load("i8").equals(0), cases[JUMP], self.next)
            f.begin(cases[UNLESS_EQUAL])
            selector = record.load("i32").resized("i64", signed=True)
            f.branch(selector.differs(self.number.value), cases[JUMP], self.next)
            f.begin(cases[STAMP])
            self.stamp(record, cases[PYTHON])
            f.begin(cases[START])
            position.element("i64", 1).store(number, order="monotonic")
            self.start(record)
            f.begin(cases[AWAIT])
            self.wait(record)
            f.begin(cases[PROGRESS])
            f.call("void", LOOK_AROUND, self.table)
            f.jump(self.next)
            f.begin(cases[PYTHON])
            self.stop(Stop.PYTHON)
            f.begin(self.next)
            rounds.again(following, jumps, until)
            f.begin(cases[JUMP])
            there, left = i + self.number.away, jumps - 1
            with f.when(left.differs(0)):
                rounds.again(there, left, until)
            present = now(f)
            with f.when(until.equals(0)):
                rounds.again(there, JUMPS, present + INTERVAL_NANOSECONDS)
            with f.when(present < until):
                rounds.again(there, JUMPS, until)
            self.table.element("i64", ROW).store(there)
            f.ret(Stop.INTERRUPTED)
        self.table.element("i64", ROW).store(count)
        f.ret(Stop.FINISHED)
        f.finish()

    def stop(self, why: Stop) -> None:
        """Return ``why`` from the function. The next call continues at this row."""
        self.table.element("i64", ROW).store(self.row)
        self.f.ret(why)

    def fail(self, status: Int) -> None:
        """Store ``status`` and return Stop.FAILED."""
        self.table.element("i64", STATUS).store(status)
        self.stop(Stop.FAILED)

    def stamp(self, time_at: Pointer, full: str) -> None:
        """Append a timestamp to the log, or go to ``full`` if the log is full.

        The time is that in the word ``time_at``, or the present if the address is null.
        """
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
        """Start the collective with ``header``; unless it completes at once, it is in flight."""
        f = self.f
        begun = f.call("i64", "spmd_start", header)
        with f.when(begun.equals(RunStatus.COMPLETE)):
            f.jump(self.next)
        with f.when(begun.equals(RunStatus.BLOCKED)):
            f.call("void", ENTER_IN_FLIGHT, self.table, header)
            f.jump(self.next)
        self.fail(begun)

    def wait(self, header: Pointer) -> None:
        """Wait for the collective with ``header``; if it blocks, advance all others and return."""
        f = self.f
        come = f.call("i64", "spmd_advance", header, self.spins)
        with f.when(come.equals(RunStatus.COMPLETE)):
            f.call("void", LEAVE_IN_FLIGHT, self.table, header)
            f.jump(self.next)
        with f.when(come.equals(RunStatus.BLOCKED)):
            f.call("void", ADVANCE_ALL, self.table)
            self.stop(Stop.BLOCKED)
        self.fail(come)
