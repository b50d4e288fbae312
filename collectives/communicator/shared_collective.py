"""A collective over shared memory: native steps, started and awaited; Python only where somebody is late."""

from __future__ import annotations

import os
from collections.abc import Callable

from collectives.communicator.kinds import Collective
from collectives.communicator.shared_buffers import Buffers
from collectives.communicator.shared_steps import LoadedSteps, Outcome
from collectives.communicator.waiting import WaitingWorld
from spmd.errors import RunError

_BLOCKED = int(Outcome.BLOCKED)
_TURNS = 30
"""Looks at who is late, the core given up before each, until a wait is a long one."""


class SharedCollective:
    """A BoundCollective. Between ``start`` and the end of ``wait`` its peers use its buffers, afterwards never."""

    def __init__(
        self, world: WaitingWorld, collective: Collective, name: str, buffers: Buffers, spins: int
    ) -> None:
        """``spins``: how often to look again at a member that is late before giving up the core."""
        self.collective = collective
        self.name = name
        self.buffers = buffers
        self._world = world
        self._spins = spins
        self._note_start = world.prepared_note(f"last started {name}")
        self._steps: LoadedSteps | None = None
        self._start: Callable[[], int] = _misused
        self._look: Callable[[], int] = _misused
        self._spin: Callable[[], int] = _misused
        self._keep: tuple[object, ...] = ()

    def load(self, steps: LoadedSteps, keep: tuple[object, ...]) -> None:
        """``keep``: the memory that the steps address, beside the buffers."""
        self._steps = steps
        self._start = steps.start
        self._look = steps.advancing(0)
        self._spin = steps.advancing(self._spins)
        self._keep = keep

    # Where nothing is amiss, start and wait cost two calls of native code and a note: an Outcome is 0 then.
    def start(self) -> None:
        self._note_start()
        outcome = self._start()
        if outcome and not self._is_over(outcome):
            self._world.enter(self)

    def poll(self) -> bool:
        return self._is_over(self._look())

    def test(self) -> bool:
        self._world.progress()
        if not self.poll():
            return False
        self._world.retire(self)
        return True

    def wait(self) -> None:
        outcome = self._spin()
        turns = 0
        while outcome == _BLOCKED and turns < _TURNS:
            # Most who are late are about to come: on this very core, where ranks outnumber cores.
            os.sched_yield()
            outcome = self._spin()
            turns += 1
        if outcome and not self._is_over(outcome):
            self._wait_long()
        self._world.retire(self)

    def _wait_long(self) -> None:
        """Somebody is late: wait with patience, and let everything else in flight go on, on which others may wait."""
        assert self._steps is not None
        group, missing = self.collective.group, self._steps.missing
        self._world.wait_until(self._progress_and_spin, self.name, group, missing)

    def _progress_and_spin(self) -> bool:
        self._world.progress()
        return self._is_over(self._spin())

    def _is_over(self, outcome: int) -> bool:
        if outcome == Outcome.COMPLETE:
            return True
        if outcome != Outcome.BLOCKED:
            self._fail(outcome)
        return False

    def _fail(self, outcome: int) -> None:
        if outcome == Outcome.OUT_OF_BOUNDS:
            raise RunError(f"{self.name}: offsets and sizes point outside of an array")
        if self._steps is None:
            raise RunError(f"{self.name} is used before it was connected")
        raise RunError(f"{self.name} is started again before it was waited for")


def _misused() -> int:
    """Stands for native code until there is some."""
    return Outcome.MISUSED
