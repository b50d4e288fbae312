"""Recorder of one device's timestamps, which native code records between its thunks (cpu/step/segment_ir.py)."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from dataclasses import field

import numpy as np

from collectives.communicator.native_collective import NativeCollective
from runtime.cpu.collective.action_records import LANDED, MET, UNTIMED
from runtime.cpu.step.device_table import LOG_WORDS, TIMESTAMP_WORDS
from runtime.device_program import RETAINED_STEPS
from runtime.program.thunks import Thunk, traverse
from runtime.timeline.timestamps import Moment, RecordedStep, mark_of
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray

#: Capacity of a log in timestamps. When it is full, native code calls Python, which empties it.
LOG_CAPACITY = 8192


@dataclass(frozen=True, slots=True)
class _RecordedTimestamps:
    """Timestamps of step ``number``, as consecutive arrays of shape [n, 2] that hold marks and nanoseconds."""

    number: int
    is_blocking: bool
    parts: list[NDArray] = field(default_factory=list)

    @property
    def step(self) -> RecordedStep:
        """Return the step with its timestamps."""
        timestamps = tuple((mark, at) for part in self.parts for mark, at in part.tolist())
        return RecordedStep(self.number, self.is_blocking, timestamps)


class Recorder:
    """Recorder of the timestamps of the last ``RETAINED_STEPS`` steps of the program ``root``.

    ``log_capacity`` is the number of timestamps that native code can record before it calls Python.
    """

    def __init__(self, root: Thunk, log_capacity: int = LOG_CAPACITY) -> None:
        self._steps: deque[_RecordedTimestamps] = deque(maxlen=RETAINED_STEPS)
        self._log = np.zeros(LOG_WORDS + TIMESTAMP_WORDS * log_capacity, np.int64)
        self._log[1] = log_capacity
        self.address = int(self._log.ctypes.data)
        self._numbers = {id(thunk): number for number, thunk in enumerate(traverse(root))}

    @property
    def steps(self) -> list[RecordedStep]:
        """Return the recorded steps, oldest first. The last one may be unfinished."""
        self.make_room()
        return [timestamps.step for timestamps in self._steps]

    def begin_step(self, number: int, is_blocking: bool) -> None:
        """Begin step ``number``. ``is_blocking`` tells whether it waits for each collective at its start."""
        self.make_room()
        self._steps.append(_RecordedTimestamps(number, is_blocking))

    def begins(self, thunk: Thunk) -> TimestampCallback:
        """Return the callable that records the begin of ``thunk``."""
        return self._callback(thunk, Moment.BEGINS)

    def ends(self, thunk: Thunk) -> TimestampCallback:
        """Return the callable that records the end of ``thunk``."""
        return self._callback(thunk, Moment.ENDS)

    def course(self, thunk: Thunk, collective: NativeCollective) -> tuple[TimestampCallback, ...]:
        """Return the callables that record when ``collective``, for which ``thunk`` waits, met its peers and ended."""
        return tuple(
            self._callback(thunk, moment, collective, word)
            for moment, word in ((Moment.MET, MET), (Moment.LANDED, LANDED))
        )

    def waited(self, start: Thunk) -> TimestampCallback:
        """Return the callable that records the end of a blocking wait at ``start``."""
        return self._callback(start, Moment.WAITED)

    def make_room(self) -> None:
        """Move the timestamps of the log into the record of the current step."""
        count = int(self._log[0])
        if count:
            entries = self._log[LOG_WORDS : LOG_WORDS + TIMESTAMP_WORDS * count]
            self._steps[-1].parts.append(entries.reshape(count, TIMESTAMP_WORDS).copy())
            self._log[0] = 0

    def record(self, mark: int, at: int) -> None:
        """Record the event ``mark`` at the time ``at`` in nanoseconds, after making room in the log."""
        self.make_room()
        self._steps[-1].parts.append(np.array([[mark, at]], np.int64))

    def _callback(
        self,
        thunk: Thunk,
        moment: Moment,
        collective: NativeCollective | None = None,
        word: int = 0,
    ) -> TimestampCallback:
        mark = mark_of(self._numbers[id(thunk)], moment)
        return TimestampCallback(self, mark, collective, word)


@dataclass(frozen=True)
class TimestampCallback:
    """Callable that records the event ``mark`` at the present time or, if ``collective`` is given, at a known time.

    Native code stores the known time in word number ``word`` of the header of the collective's program.
    """

    recorder: Recorder
    mark: int
    collective: NativeCollective | None = None
    word: int = 0

    @property
    def address(self) -> int:
        """Return the address of the known time, which native code reads, or 0 for the present time.

        From then on native code notes the times of the collective. Raises RunError before the collective is connected.
        """
        if self.collective is None:
            return 0
        header = self.collective.address
        ctypes.c_int64.from_address(header + 8 * UNTIMED).value = 0
        return header + 8 * self.word

    def __call__(self) -> None:
        at = time.perf_counter_ns()
        if self.collective is not None:
            at = ctypes.c_int64.from_address(self.address).value
        self.recorder.record(self.mark, at)
