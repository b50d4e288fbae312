"""Worker thread: it runs the tables of its devices in native code and calls Python for the rows that need it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, partial
from typing import TypeAlias, TypeVar

import numpy as np

from collectives.communicator.native_collective import NativeCollective
from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.cpu.step.device_table import State, Table
from runtime.cpu.step.segment import FUNCTION, PythonWait, SegmentRow, Stop

Result = TypeVar("Result")

_LINE_WORDS = 8

#: REWIND(worker) sets the worker's tables to their first rows. DRIVE(worker, begin) runs the tables, from their first
#: rows if ``begin`` is not 0.
REWIND, DRIVE = "rewind", "spmd_drive"


class WorkerWord(IntEnum):
    """Words of a worker's record. Words that different threads write are in different cache lines."""

    TABLES = 0  # number of tables
    TABLE_LIST = 1  # address of the list of the tables' addresses
    SPINS = 2  # polls of a wait, if the worker has one table
    ROUNDS = 3  # rounds without progress before the core is yielded between rounds
    YIELDS = 4  # rounds with a yield before the worker returns
    CURRENT = 5  # index of the table at which the worker stopped
    SPIN_LIMIT = (
        6  # polls for the next step before the thread sleeps; it yields the core in the second half
    )
    WORKERS = 7  # address of the list of the addresses of the team's workers
    ASKED = 8  # number of the requested step; negative: the thread must end
    EARLIER = 9  # number of workers before this one, whose cores it avoids
    HELPED = (
        10  # number of workers, from the first on, whose shares a helper runs; 0: it is no helper
    )
    DONE = 16  # number of the completed step
    ASLEEP = 17
    CORE = 18  # core on which the worker began the step
    OPEN_SHARE = 19  # address of the share whose pieces helpers may take; 0: none
    SEMAPHORE = 24


#: Size of the record, which ends with a ``sem_t`` of 32 bytes, as in glibc and musl.
WORKER_WORDS = 32


class WorkerStop(IntEnum):
    """Reason, in addition to those of ``Stop``, for which a call of a worker or team has returned."""

    RETIRED = 5  # The worker's thread must end.
    JOINING = 6  # The first worker has finished and waits for others.


class TeamCode:
    """Native functions of workers and teams as ctypes functions. All results are a Stop or a WorkerStop."""

    def __init__(self) -> None:
        self.library = team_library()
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        function = self.library.function
        #: drive(worker, begin) runs the worker's tables, from their first rows if ``begin`` is not 0.
        self.drive = function(DRIVE, word, pointer, word)
        #: serve(worker, at_work) runs the current step on if ``at_work``, then waits for steps and runs them.
        #: It returns when Python is needed.
        self.serve = function("spmd_serve", word, pointer, word)
        #: team(team, begin) runs a step on all workers, a new one if ``begin`` is not 0.
        self.team = function("spmd_team", word, pointer, word)
        #: retire(worker) makes the worker's thread return RETIRED.
        self.retire = function("spmd_retire", None, pointer)
        self.open_worker = function("spmd_open_worker", None, pointer)


@cache
def team_library() -> NativeLibrary:
    """Return the library of the functions of ``TeamCode``."""
    names = (FUNCTION, DRIVE, "spmd_serve", "spmd_team", "spmd_retire", "spmd_open_worker")
    return host_jit().compile(
        DeferredIr("runtime.cpu.step.thread_team_ir", "team_ir"), names, passes=Passes.TIDY
    )


@cache
def team_code() -> TeamCode:
    """Return the process's functions of workers and teams, which are compiled at the first use."""
    return TeamCode()


_YIELDS = 30
"""Number of rounds of polls with a yield of the core before each, after which Python takes over the wait.

Python sleeps between polls. The system schedules a thread that wakes before busy threads, but on a busy machine it
schedules a thread that has yielded only a time slice later.
"""

WaitHandler: TypeAlias = Callable[[int, SegmentRow], bool]
"""Function that a worker calls with a waiting device's (rank, current row) when all of its devices wait.

It raises if the wait cannot end. It returns True if it has blocked until the wait may be over, and False if it has only
checked; the worker then pauses before the next poll.
"""

_PAUSE_SECONDS = 50e-6


class Worker:
    """The tables that one thread runs in turn. ``address`` is the address of the worker's record (worker_ir.py)."""

    def __init__(
        self, tables: Sequence[Table], wait_handler: WaitHandler, spins: int = 0, rounds: int = 0
    ) -> None:
        """Make the record of a worker that runs ``tables``.

        If there is one table, a wait polls ``spins`` times before it blocks. If there are several, the worker runs
        ``rounds`` rounds without progress before it yields the core between rounds.
        """
        self.tables = tuple(tables)
        self._wait_handler = wait_handler
        self._in_python: list[Table] = []
        self._data = np.zeros(WORKER_WORDS + _LINE_WORDS, np.int64)
        start = -self._data.ctypes.data % (8 * _LINE_WORDS) // 8
        self._list = np.array([table.address for table in tables], np.int64)
        self._view = self._data.data[start:]
        self.address = int(self._data[start:].ctypes.data)
        self._view[WorkerWord.TABLES] = len(tables)
        self._view[WorkerWord.TABLE_LIST] = self._list.ctypes.data
        self._view[WorkerWord.SPINS] = spins
        self._view[WorkerWord.ROUNDS] = rounds
        self._view[WorkerWord.YIELDS] = _YIELDS
        code: TeamCode = team_code()
        code.open_worker(self.address)
        self._drive = code.drive
        self._argument = ctypes.c_void_p(self.address)

    def publish_shares(self) -> None:
        """Publish the shares of the worker's devices to helpers from now on."""
        for table in self.tables:
            table.publish_at(self.address + 8 * WorkerWord.OPEN_SHARE)

    def __getitem__(self, word: WorkerWord) -> int:
        return self._view[word]

    def __setitem__(self, word: WorkerWord, value: int) -> None:
        self._view[word] = value

    def run(self) -> None:
        """Run a step of the worker's devices on the calling thread. Raises the error of a row, with position notes."""
        stop = self._drive(self._argument, 1)
        while stop:
            self.attend(stop)
            stop = self._drive(self._argument, 0)

    @property
    def current(self) -> Table:
        """Return the table at which native code has stopped last."""
        return self.tables[self._view[WorkerWord.CURRENT]]

    def attend(self, stop: int) -> None:
        """Handle ``stop``, the reason for which native code has returned."""
        with np.errstate(all="ignore"):  # infinities and nan are ordinary values of a program
            if stop == Stop.BLOCKED:
                self._wait()
            elif stop != Stop.INTERRUPTED:
                table = self.current
                self._guarded(table, partial(self._do_row, table, stop))
            for table in tuple(self._in_python):
                self._guarded(table, partial(self._ask, table))

    def _do_row(self, table: Table, stop: int) -> None:
        """Run the current row of ``table`` in Python, or raise the error of its failed collective."""
        target = table.row.target
        if stop == Stop.FAILED:
            assert isinstance(target, NativeCollective)
            target.fail(table.status)
        _enter_in_flight(table)
        if isinstance(target, PythonWait) and len(self.tables) > 1:
            table.state = State.IN_PYTHON
            self._in_python.append(table)
            return
        assert callable(target)
        target()
        table.pass_row()

    def _ask(self, table: Table) -> None:
        """Poll the collective that Python runs for ``table``. If it is complete, the table is resumed."""
        wait = table.row.target
        assert isinstance(wait, PythonWait)
        if wait.bound.test():
            table.pass_row()
            table.state = State.RUNNING
            self._in_python.remove(table)

    def _wait(self) -> None:
        """Call the wait handler for every unfinished device, and pause if none has waited."""
        waiting = [table for table in self.tables if table.state is not State.FINISHED]
        for table in waiting:
            _enter_in_flight(table)
        has_news = False
        for table in waiting:
            has_news |= self._guarded(table, partial(self._wait_handler, table.rank, table.row))
        if not has_news:
            time.sleep(_PAUSE_SECONDS)

    def _guarded(self, table: Table, work: Callable[[], Result]) -> Result:
        """Run ``work`` and add notes on the position of ``table``'s device to its errors."""
        try:
            return work()
        except Exception as error:
            for what in table.row.within:
                error.add_note(f"while running {what}")
            raise


def _enter_in_flight(table: Table) -> None:
    """Let the native collectives in flight make progress while Python waits for other collectives."""
    for row in table.in_flight:
        assert isinstance(row.target, NativeCollective)
        row.target.enter()
