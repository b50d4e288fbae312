"""Recorder: one device's stamps, which native code takes among its thunks (cpu/step/segment_ir.py).

Thunks of a sequence follow one another without a gap, so one stamp at each one's end says nearly all; thunks with
others inside leave one when they begin as well, and the wait for a collective those that say how it went. Nothing is
computed while the device runs: ``events.py`` reads the stamps afterwards.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from collectives.communicator.native_collective import NativeCollective
from runtime.cpu.collective.shared_memory_ir import LANDED, MET
from runtime.cpu.step.table_record import LOG_WORDS, STAMP_WORDS
from runtime.program.thunks.thunk import Thunk, walk
from spmd.literal import NDArray

Stamp: TypeAlias = tuple[int, int]
"""A mark (``moment_of``), and nanoseconds of the clock."""


class Moment(IntEnum):
    """What a stamp says of its thunk."""

    ENDS = 0
    BEGINS = 1
    MET = 2  # the peers had come whom the collective that it has waited for needs first; 0: it needs nobody
    LANDED = 3  # that collective was found complete
    WAITED = 4  # a start, in a blocking step: its collective has been waited for


def mark_of(number: int, moment: Moment) -> int:
    """Of the thunk with that number in ``walk``'s order."""
    return number * len(Moment) + moment


def moment_of(mark: int) -> tuple[int, Moment]:
    """The number of a mark's thunk, and what is said of it."""
    number, moment = divmod(mark, len(Moment))
    return number, Moment(moment)


#: Steps that are kept, the last ones: a long run must not fill the memory with stamps.
KEPT_STEPS = 10

#: Stamps for which a log has room; longer steps come to Python now and then.
LOG_STAMPS = 8192


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """``number``: counted from 1, the same on all devices. is_blocking: each collective was waited for at its start."""

    number: int
    is_blocking: bool
    stamps: tuple[Stamp, ...]


@dataclass(frozen=True, slots=True)
class _Taken:
    """A step's stamps as arrays of marks and nanoseconds, one after the other."""

    number: int
    is_blocking: bool
    parts: list[NDArray] = field(default_factory=list)

    @property
    def step(self) -> RecordedStep:
        stamps = tuple((mark, at) for part in self.parts for mark, at in part.tolist())
        return RecordedStep(self.number, self.is_blocking, stamps)


class Recorder:
    """Stamps of the last ``KEPT_STEPS`` steps. ``log_stamps``: how many native code may take in a row."""

    def __init__(self, root: Thunk, log_stamps: int = LOG_STAMPS) -> None:
        self._steps: deque[_Taken] = deque(maxlen=KEPT_STEPS)
        self._log = np.zeros(LOG_WORDS + STAMP_WORDS * log_stamps, np.int64)
        self._log[1] = log_stamps
        self.address = int(self._log.ctypes.data)
        self._numbers = {id(thunk): number for number, thunk in enumerate(walk(root))}

    @property
    def steps(self) -> list[RecordedStep]:
        """Oldest first, the last one as far as it has come."""
        self.make_room()
        return [taken.step for taken in self._steps]

    def begin_step(self, number: int, is_blocking: bool) -> None:
        self.make_room()
        self._steps.append(_Taken(number, is_blocking))

    def begins(self, thunk: Thunk) -> Taker:
        """What takes down that it begins."""
        return self._taker(thunk, Moment.BEGINS)

    def ends(self, thunk: Thunk) -> Taker:
        return self._taker(thunk, Moment.ENDS)

    def course(self, thunk: Thunk, collective: NativeCollective) -> tuple[Taker, ...]:
        """What takes down how ``collective`` went, for which ``thunk`` has waited."""
        return tuple(
            self._taker(thunk, moment, Word(collective, word))
            for moment, word in ((Moment.MET, MET), (Moment.LANDED, LANDED))
        )

    def waited(self, start: Thunk) -> Taker:
        return self._taker(start, Moment.WAITED)

    def make_room(self) -> None:
        """Bring what is in the log to a safe place."""
        count = int(self._log[0])
        if count:
            words = self._log[LOG_WORDS : LOG_WORDS + STAMP_WORDS * count]
            self._steps[-1].parts.append(words.reshape(count, STAMP_WORDS).copy())
            self._log[0] = 0

    def take(self, mark: int, at: int) -> None:
        """Leave a stamp that found no room in the log."""
        self.make_room()
        self._steps[-1].parts.append(np.array([[mark, at]], np.int64))

    def _taker(self, thunk: Thunk, moment: Moment, known: Word | None = None) -> Taker:
        return Taker(self, mark_of(self._numbers[id(thunk)], moment), known)


@dataclass(frozen=True, slots=True)
class Word:
    """A time that native code notes in the header of a collective's steps (cpu/collective/shared_memory_ir.py)."""

    collective: NativeCollective
    word: int

    @property
    def address(self) -> int:
        """RunError before the collective is connected."""
        return self.collective.address + 8 * self.word


@dataclass(frozen=True)
class Taker:
    """Takes one kind of stamp: of the time that is ``known``, or of the present."""

    recorder: Recorder
    mark: int
    known: Word | None = None

    @property
    def address(self) -> int:
        """Of the time, for native code; 0: of the present."""
        return 0 if self.known is None else self.known.address

    def __call__(self) -> None:
        at = time.perf_counter_ns()
        if self.known is not None:
            at = ctypes.c_int64.from_address(self.known.address).value
        self.recorder.take(self.mark, at)
