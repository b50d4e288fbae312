"""Settings of the Python interpreter that suit a process that compiles a program."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

#: Number of new objects between two garbage collections of the youngest generation. Python's default is some hundred.
_OBJECTS_PER_COLLECTION = 100_000
#: Seconds after which a thread that waits for the interpreter gets it. Python's default is 5 ms. Threads that compile
#: with LLVM wait after each of their calls, and a small kernel takes twenty calls.
_SWITCH_INTERVAL = 1e-4
#: Largest number of frozen objects that may be Python's own: 3.12 freezes its immortal objects. A program that freezes
#: objects, as servers do before they fork, freezes some ten thousand.
_FROZEN_BY_PYTHON = 2_000


class _Settings(NamedTuple):
    thresholds: tuple[int, int, int]
    switch_interval: float

    @classmethod
    def current(cls) -> _Settings:
        return cls(gc.get_threshold(), sys.getswitchinterval())

    def apply(self) -> None:
        gc.set_threshold(*self.thresholds)
        sys.setswitchinterval(self.switch_interval)

    def for_compiling(self) -> _Settings:
        first, second, third = self.thresholds
        if 0 < first < _OBJECTS_PER_COLLECTION:
            first = _OBJECTS_PER_COLLECTION
        return _Settings((first, second, third), min(self.switch_interval, _SWITCH_INTERVAL))


class _Compilations:
    """Number of compilations that go on in threads of this process, and the settings before the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._before = _Settings.current()
        #: Whether the program freezes objects. Once true, the frozen objects are not counted again, because counting a
        #: million of them takes 150 ms.
        self._program_freezes = False

    def begin(self) -> None:
        with self._lock:
            if not self._number:
                self._before = _Settings.current()
                self._before.for_compiling().apply()
            self._number += 1

    def end(self) -> None:
        with self._lock:
            self._number -= 1
            if not self._number:
                self._count_as_old()
                self._before.apply()

    def _count_as_old(self) -> None:
        """Move all objects to the oldest generation, unless the program ever froze some, which this would unfreeze.

        Otherwise the first object after a compilation begins a traversal of what the compilation made, which stays, and
        takes 6 % of the compilation of a small program. Cycles that passes leave are collected with the oldest
        generation.
        """
        if not self._program_freezes:
            self._program_freezes = gc.get_freeze_count() > _FROZEN_BY_PYTHON
        if not self._program_freezes:
            gc.freeze()
            gc.unfreeze()


_compilations = _Compilations()


@contextmanager
def settings_for_compiling() -> Iterator[None]:
    """Make garbage collections some hundred times rarer, and let threads take turns fifty times as often.

    What a compilation makes stays; to traverse it again and again takes a tenth of the time. Cycles that passes leave
    are still collected. The settings are those of the process; they are restored when the last of nested or
    concurrent contexts ends.
    """
    _compilations.begin()
    try:
        yield
    finally:
        _compilations.end()
