"""A team that grows: one thread while steps are short, one for each core from the first longer step on.

Threads that meet in a step cost more than they save where the step is short: one that sleeps takes a quarter of a
millisecond to wake, and one whose core is taken by other work holds up all others for a slice of the system's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from runtime.cpu.step.thread_team import ThreadTeam

#: Seconds of a step that more threads must save.
LEAST_SAVED = 10e-6
#: Long steps one after the other that prove that steps are long: a single one may have been disturbed.
_LONG_STEPS = 4
#: A step that takes so many times as long proves it alone, also if it is the first, which touches new memory.
_CERTAIN = 20
#: Steps that are timed: so many at the start, and one in so many of the others.
_TIMED, _EVERY = 16, 64


class GrowingTeam:
    """Runs steps on one thread, and on `most` of them when it has found that these are worth it.

    `make` gives a team of so many threads for the same devices. The processor's time counts, not the clock's: a thread
    that waits for its core is no reason for more threads.
    """

    def __init__(self, make: Callable[[int], ThreadTeam], most: int, *, small: bool) -> None:
        """`small`: begin with one thread."""
        self.most = most
        self._make = make
        self.threads = 1 if small else most
        self._team = make(self.threads)
        self._steps = self._long_steps = 0

    def run(self) -> None:
        """Run one step. Errors are those of ``ThreadTeam.run``."""
        if self.threads == self.most or not self._is_timed():
            self._team.run()
            return
        start = time.thread_time()
        self._team.run()
        saved = (time.thread_time() - start) * (1 - 1 / self.most)
        self._long_steps = self._long_steps + 1 if saved > LEAST_SAVED else 0
        if self._long_steps == _LONG_STEPS or saved > _CERTAIN * LEAST_SAVED:
            self.threads = self.most
            self._team = self._make(self.threads)

    def _is_timed(self) -> bool:
        self._steps += 1
        return self._steps <= _TIMED or self._steps % _EVERY == 0
