"""Recorder: one device's timestamps, which native code records among its thunks (cpu/step/segment_ir.py)."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from dataclasses import field

import numpy as np

from collectives.communicator.native_collective import NativeCollective
from runtime.cpu.collective.action_records import LANDED, MET
from runtime.cpu.step.device_table import LOG_WORDS, TIMESTAMP_WORDS
from runtime.device_program import RETAINED_STEPS
from runtime.program.thunks import Thunk, traverse
from runtime.timeline.timestamps import Moment, RecordedStep, mark_of
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray

#: Capacity of a log in timestamps; a longer step calls Python when the log is full.
LOG_CAPACITY = 8192


@dataclass(frozen=True, slots=True)
class _RecordedTimestamps:
    """Timestamps of one step as consecutive arrays of marks and nanoseconds."""

    number: int
    is_blocking: bool
    parts: list[NDArray] = field(default_factory=list)

    @property
    def step(self) -> RecordedStep:
        timestamps = tuple((mark, at) for part in self.parts for mark, at in part.tolist())
        return RecordedStep(self.number, self.is_blocking, timestamps)


class Recorder:
    """Timestamps of the last ``RETAINED_STEPS`` steps. ``log_capacity``: how many native code may record in a row."""

    def __init__(self, root: Thunk, log_capacity: int = LOG_CAPACITY) -> None:
        self._steps: deque[_RecordedTimestamps] = deque(maxlen=RETAINED_STEPS)
        self._log = np.zeros(LOG_WORDS + TIMESTAMP_WORDS * log_capacity, np.int64)
        self._log[1] = log_capacity
        self.address = int(self._log.ctypes.data)
        self._numbers = {id(thunk): number for number, thunk in enumerate(traverse(root))}

    @property
    def steps(self) -> list[RecordedStep]:
        """The recorded steps, oldest first; the last one may be unfinished."""
        self.make_room()
        return [timestamps.step for timestamps in self._steps]

    def begin_step(self, number: int, is_blocking: bool) -> None:
        self.make_room()
        self._steps.append(_RecordedTimestamps(number, is_blocking))

    def begins(self, thunk: Thunk) -> TimestampCallback:
        """Return the callable that records the begin of ``thunk``."""
        return self._callback(thunk, Moment.BEGINS)

    def ends(self, thunk: Thunk) -> TimestampCallback:
        return self._callback(thunk, Moment.ENDS)

    def course(self, thunk: Thunk, collective: NativeCollective) -> tuple[TimestampCallback, ...]:
        """Return the callables that record when ``collective``, awaited by ``thunk``, met its peers and completed."""
        return tuple(
            self._callback(thunk, moment, Word(collective, word))
            for moment, word in ((Moment.MET, MET), (Moment.LANDED, LANDED))
        )

    def waited(self, start: Thunk) -> TimestampCallback:
        return self._callback(start, Moment.WAITED)

    def make_room(self) -> None:
        """Move the timestamps of the log into the current step."""
        count = int(self._log[0])
        if count:
            entries = self._log[LOG_WORDS : LOG_WORDS + TIMESTAMP_WORDS * count]
            self._steps[-1].parts.append(entries.reshape(count, TIMESTAMP_WORDS).copy())
            self._log[0] = 0

    def record(self, mark: int, at: int) -> None:
        """Record a timestamp for which the log has no room."""
        self.make_room()
        self._steps[-1].parts.append(np.array([[mark, at]], np.int64))

    def _callback(
        self, thunk: Thunk, moment: Moment, known: Word | None = None
    ) -> TimestampCallback:
        return TimestampCallback(self, mark_of(self._numbers[id(thunk)], moment), known)


@dataclass(frozen=True, slots=True)
class Word:
    """Time that native code writes into the header of a collective's steps (cpu/collective/shared_memory_ir.py)."""

    collective: NativeCollective
    word: int

    @property
    def address(self) -> int:
        """The address of the time. Raises RunError before the collective is connected."""
        return self.collective.address + 8 * self.word


@dataclass(frozen=True)
class TimestampCallback:
    """Callable that records one kind of timestamp: the time that is ``known``, or the present."""

    recorder: Recorder
    mark: int
    known: Word | None = None

    @property
    def address(self) -> int:
        """The address of the known time, for native code; 0 for the present."""
        return 0 if self.known is None else self.known.address

    def __call__(self) -> None:
        at = time.perf_counter_ns()
        if self.known is not None:
            at = ctypes.c_int64.from_address(self.known.address).value
        self.recorder.record(self.mark, at)
