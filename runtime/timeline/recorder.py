"""Recorder: one device's stamps, which native code takes among its thunks (codegen/llvm_segment.py).

Thunks of a sequence follow one another without a gap, so one stamp at each one's end says all; only thunks with others
inside leave one when they begin as well. Nothing is computed while the device runs: ``events.py`` reads the stamps
afterwards.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from runtime.codegen.llvm_segment import LOG_WORDS, STAMP_WORDS
from runtime.thunks.thunk import Thunk, walk
from spmd.literal import NDArray

Stamp: TypeAlias = tuple[int, int]
"""Number of the thunk (in ``walk``'s order) that ends, or its complement where one begins; nanoseconds of the clock."""

#: Steps that are kept, the last ones: a long run must not fill the memory with stamps.
KEPT_STEPS = 10

#: Stamps for which a log has room; longer steps come to Python now and then.
LOG_STAMPS = 8192


class Recorder:
    """Stamps of the last ``KEPT_STEPS`` steps. ``log_stamps``: how many native code may take in a row."""

    def __init__(self, root: Thunk, log_stamps: int = LOG_STAMPS) -> None:
        #: Rows of a mark, seconds and nanoseconds; a step is several such arrays, one after the other.
        self._finished: deque[list[NDArray]] = deque(maxlen=KEPT_STEPS - 1)
        self._taken: list[NDArray] = []
        self._log = np.zeros(LOG_WORDS + STAMP_WORDS * log_stamps, np.int64)
        self._log[1] = log_stamps
        self.address = int(self._log.ctypes.data)
        self._numbers = {id(thunk): number for number, thunk in enumerate(walk(root))}

    @property
    def steps(self) -> list[tuple[Stamp, ...]]:
        """Oldest first, the last one as far as it has come."""
        self.make_room()
        steps = [*self._finished, self._taken] if self._taken else [*self._finished]
        return [_stamps(parts) for parts in steps]

    def begin_step(self) -> None:
        self.make_room()
        if self._taken:
            self._finished.append(self._taken)
            self._taken = []

    def number(self, thunk: Thunk) -> int:
        return self._numbers[id(thunk)]

    def begins(self, number: int) -> Taker:
        """Take down that thunk ``number`` begins."""
        return Taker(self, ~number)

    def ends(self, number: int) -> Taker:
        return Taker(self, number)

    def make_room(self) -> None:
        """Bring what is in the log to a safe place."""
        count = int(self._log[0])
        if count:
            words = self._log[LOG_WORDS : LOG_WORDS + STAMP_WORDS * count]
            self._taken.append(words.reshape(count, STAMP_WORDS).copy())
            self._log[0] = 0

    def take(self, mark: int) -> None:
        """Leave a stamp that found no room in the log."""
        self.make_room()
        seconds, nanoseconds = divmod(time.perf_counter_ns(), 10**9)
        self._taken.append(np.array([[mark, seconds, nanoseconds]], np.int64))


@dataclass(frozen=True)
class Taker:
    """Takes one kind of stamp."""

    recorder: Recorder
    mark: int

    @property
    def log(self) -> int:
        return self.recorder.address

    def __call__(self) -> None:
        self.recorder.take(self.mark)


def _stamps(parts: list[NDArray]) -> tuple[Stamp, ...]:
    return tuple((int(m), int(s) * 10**9 + int(ns)) for part in parts for m, s, ns in part)
