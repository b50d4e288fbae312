"""Recorder: one device's stamps, as cheap as Python lets them be.

Thunks of a sequence follow one another without a gap, so one stamp at each one's end says all; only thunks with others
inside leave one when they begin as well. Nothing is computed while the device runs: ``events.py`` reads the stamps
afterwards.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from runtime.thunks.segment import Action
from runtime.thunks.thunk import Thunk, walk

Stamp: TypeAlias = tuple[int, int]
"""Number of the thunk (in ``walk``'s order) that ends, or its complement where one begins; nanoseconds of the clock."""

#: Steps that are kept, the last ones: a long run must not fill the memory with stamps.
KEPT_STEPS = 10

now: Callable[[], int] = time.perf_counter_ns


class Recorder:
    """Stamps of the last ``KEPT_STEPS`` steps."""

    def __init__(self, root: Thunk) -> None:
        self._finished: deque[tuple[Stamp, ...]] = deque(maxlen=KEPT_STEPS - 1)
        self._stamps: list[Stamp] = []
        self._numbers = {id(thunk): number for number, thunk in enumerate(walk(root))}

    @property
    def steps(self) -> list[tuple[Stamp, ...]]:
        """Oldest first, the last one as far as it has come."""
        return [*self._finished, tuple(self._stamps)] if self._stamps else [*self._finished]

    def begin_step(self) -> None:
        if self._stamps:
            self._finished.append(tuple(self._stamps))
            self._stamps.clear()

    def number(self, thunk: Thunk) -> int:
        return self._numbers[id(thunk)]

    def begins(self, number: int) -> Action:
        """Take down that thunk ``number`` begins."""
        return self._taker(~number)

    def ends(self, number: int) -> Action:
        return self._taker(number)

    def _taker(self, mark: int) -> Action:
        append, clock = self._stamps.append, now

        def take() -> None:
            append((mark, clock()))

        return take
