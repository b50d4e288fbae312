"""A team that grows: one thread while steps are short, one for each core from the first longer step on.

In a short step, synchronizing threads costs more than it saves: a sleeping thread takes a quarter of a millisecond to
wake, and a thread whose core other work occupies delays all others by a time slice.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from runtime.cpu.step.thread_team import ThreadTeam

#: Seconds of a step that more threads must save.
LEAST_SAVED = 10e-6
#: Consecutive long steps after which the team grows: a single one may have been disturbed.
_LONG_STEPS = 4
#: Multiple of LEAST_SAVED at which a single step suffices, even the first one, which touches new memory.
_CERTAIN = 20
#: Timed steps: the first _TIMED, then every _EVERY-th.
_TIMED, _EVERY = 16, 64


class GrowingTeam:
    """Team that runs steps on one thread, and on ``most`` threads once steps are long enough.

    ``make`` returns a team of that many threads for the same devices. Steps are measured in processor time, not in
    elapsed time: a thread that waits for its core is no reason for more threads.
    """

    def __init__(self, make: Callable[[int], ThreadTeam], most: int, *, small: bool) -> None:
        """``small``: begin with one thread."""
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
