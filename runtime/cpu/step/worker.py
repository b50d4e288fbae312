"""Worker thread: runs the tables of its devices in native code and calls Python for the rows that need it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np

from collectives.communicator.native_collective import NativeCollective
from runtime.cpu.step.device_table import Table
from runtime.cpu.step.segment import PythonWait
from runtime.cpu.step.segment_ir import SegmentRow, Stop
from runtime.cpu.step.table_record import State
from runtime.cpu.step.thread_team_ir import TeamCode, team_code
from runtime.cpu.step.worker_ir import WORKER_WORDS, WorkerWord

Result = TypeVar("Result")

_LINE_WORDS = 8

_YIELDS = 30
"""Rounds of polls with a yield before each, until Python takes over the wait.

Python sleeps: a thread that wakes is scheduled before busy ones, one that has yielded on a busy machine only a time
slice later.
"""

WaitHandler: TypeAlias = Callable[[int, SegmentRow], bool]
"""Callable for a device (rank, current row) when all devices of its worker wait. It raises if the wait cannot end.

It returns True if it has waited until something changed; otherwise the worker pauses before the next poll.
"""

_PAUSE_SECONDS = 50e-6


class Worker:
    """Tables that one thread runs in turn. ``address``: of its record (worker_ir.py)."""

    def __init__(
        self, tables: Sequence[Table], wait_handler: WaitHandler, spins: int = 0, rounds: int = 0
    ) -> None:
        """``spins``: polls of a wait before the core is yielded, if the worker has one table.

        rounds: rounds through several tables before that.
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
        """Publish the shares of its devices to other workers."""
        for table in self.tables:
            table.publish_at(self.address + 8 * WorkerWord.OPEN_SHARE)

    def __getitem__(self, word: WorkerWord) -> int:
        return self._view[word]

    def __setitem__(self, word: WorkerWord, value: int) -> None:
        self._view[word] = value

    def run(self) -> None:
        """Run a step of its devices on the calling thread. Raises the error of a row, with notes on its position."""
        stop = self._drive(self._argument, 1)
        while stop:
            self.attend(stop)
            stop = self._drive(self._argument, 0)

    @property
    def current(self) -> Table:
        """The table at which it stopped last."""
        return self.tables[self._view[WorkerWord.CURRENT]]

    def attend(self, stop: int) -> None:
        """Handle the reason for which native code returned."""
        with np.errstate(all="ignore"):  # infinities and nan are values here
            if stop == Stop.BLOCKED:
                self._wait()
            elif stop != Stop.INTERRUPTED:
                table = self.current
                self._guarded(table, partial(self._do_row, table, stop))
            for table in tuple(self._in_python):
                self._guarded(table, partial(self._ask, table))

    def _do_row(self, table: Table, stop: int) -> None:
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
        """Poll the collective that Python runs for ``table``; resume the table if it is complete."""
        wait = table.row.target
        assert isinstance(wait, PythonWait)
        if wait.bound.test():
            table.pass_row()
            table.state = State.RUNNING
            self._in_python.remove(table)

    def _wait(self) -> None:
        waiting = [table for table in self.tables if table.state is not State.FINISHED]
        for table in waiting:
            _enter_in_flight(table)
        has_news = False
        for table in waiting:
            has_news |= self._guarded(table, partial(self._wait_handler, table.rank, table.row))
        if not has_news:
            time.sleep(_PAUSE_SECONDS)

    def _guarded(self, table: Table, work: Callable[[], Result]) -> Result:
        """Run ``work``; an error gets notes on the position of ``table``'s device."""
        try:
            return work()
        except Exception as error:
            for what in table.row.within:
                error.add_note(f"while running {what}")
            raise


def _enter_in_flight(table: Table) -> None:
    """Let collectives that native code has started advance while Python waits for others."""
    for row in table.in_flight:
        assert isinstance(row.target, NativeCollective)
        row.target.enter()
