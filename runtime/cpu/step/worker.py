"""A worker: one thread's devices, run by native code, and the Python that their rows ask for."""

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
from runtime.cpu.step.worker_ir import LANE_WORDS, WorkerWord

Result = TypeVar("Result")

_LINE_WORDS = 8

_YIELDS = 30
"""Looks for who is late, the core given up before each, until Python takes over the wait.

It sleeps, and who sleeps comes before the busy; a core that is given up on a busy machine is back a slice later.
"""

Patience: TypeAlias = Callable[[int, SegmentRow], bool]
"""What to do about a device (rank, and row at which it is) when all devices of its worker wait: it raises where there
is no hope.

True when it has waited until there is something new; otherwise the worker pauses before the next look.
"""

_PAUSE_SECONDS = 50e-6


class Worker:
    """Tables that one thread runs by turns. ``address``: of its words (worker_ir.py)."""

    def __init__(
        self, tables: Sequence[Table], patience: Patience, spins: int = 0, looks: int = 0
    ) -> None:
        """``spins``: how often to look for who is late before giving up the core, where the worker has one table.

        looks: the same for rounds through several of them.
        """
        self.tables = tuple(tables)
        self._patience = patience
        self._in_python: list[Table] = []
        self._words = np.zeros(LANE_WORDS + _LINE_WORDS, np.int64)
        start = -self._words.ctypes.data % (8 * _LINE_WORDS) // 8
        self._list = np.array([table.address for table in tables], np.int64)
        self._view = self._words.data[start:]
        self.address = int(self._words[start:].ctypes.data)
        self._view[WorkerWord.TABLES] = len(tables)
        self._view[WorkerWord.TABLE_LIST] = self._list.ctypes.data
        self._view[WorkerWord.SPINS] = spins
        self._view[WorkerWord.ROUNDS] = looks
        self._view[WorkerWord.YIELDS] = _YIELDS
        code: TeamCode = team_code()
        code.open_worker(self.address)
        self._drive = code.drive
        self._argument = ctypes.c_void_p(self.address)

    def offer_shares(self) -> None:
        """Let other workers help with what its devices share."""
        for table in self.tables:
            table.offer_at(self.address + 8 * WorkerWord.OFFER)

    def __getitem__(self, word: WorkerWord) -> int:
        return self._view[word]

    def __setitem__(self, word: WorkerWord, value: int) -> None:
        self._view[word] = value

    def run(self) -> None:
        """A step of all its devices, by the calling thread. What a row raises is raised, with notes where it was."""
        stop = self._drive(self._argument, 1)
        while stop:
            self.attend(stop)
            stop = self._drive(self._argument, 0)

    @property
    def current(self) -> Table:
        """At which it stopped last."""
        return self.tables[self._view[WorkerWord.CURRENT]]

    def attend(self, stop: int) -> None:
        """Do what native code has returned for."""
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
            target.fail(table.outcome)
        _enter_in_flight(table)
        if isinstance(target, PythonWait) and len(self.tables) > 1:
            table.state = State.IN_PYTHON
            self._in_python.append(table)
            return
        assert callable(target)
        target()
        table.pass_row()

    def _ask(self, table: Table) -> None:
        """Whether the collective that Python carries for it is over by now."""
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
            has_news |= self._guarded(table, partial(self._patience, table.rank, table.row))
        if not has_news:
            time.sleep(_PAUSE_SECONDS)

    def _guarded(self, table: Table, work: Callable[[], Result]) -> Result:
        """``work``, whose errors say where ``table``'s device is."""
        try:
            return work()
        except Exception as error:
            for what in table.row.within:
                error.add_note(f"while running {what}")
            raise


def _enter_in_flight(table: Table) -> None:
    """Collectives that native code has started go on while Python waits for others."""
    for row in table.in_flight:
        assert isinstance(row.target, NativeCollective)
        row.target.enter()
