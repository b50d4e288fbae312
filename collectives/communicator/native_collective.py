"""A bound collective that native code runs. Python takes part in a wait only if a member is late."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

from collectives.communicator.actions.engine import LoadedCollective, RunStatus
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.group import Group
from collectives.communicator.kinds.op import Collective
from collectives.communicator.wait_context import WaitingWorld
from spmd.errors import RunError

_BLOCKED = int(RunStatus.BLOCKED)
_TURNS = 30
"""Polls, each after a yield of the core, before a wait is treated as long."""


class NativeCollective:
    """A BoundCollective whose actions run in native code.

    Peers access its buffers between ``start`` and the end of ``wait``, and at no other time.
    """

    def __init__(
        self,
        world: WaitingWorld,
        collective: Collective,
        name: str,
        buffers: Buffers,
        spins: int,
        *,
        needs_progress: bool = False,
    ) -> None:
        """Create the collective of one rank on ``buffers``. ``load`` provides its actions.

        spins: polls at a wait for a late member before the core is yielded. needs_progress: the actions wait for
        messages, which progress only while the collective is polled.
        """
        self.collective = collective
        self.name = name
        self.buffers = buffers
        self.needs_progress = needs_progress
        self._world = world
        self._spins = spins
        self._note_start = world.prepared_note(f"last started {name}")
        self._enter, self._retire = world.in_flight.enter, world.in_flight.retire
        self._program: LoadedCollective | None = None
        self._start: Callable[[], int] = _misused
        self._look: Callable[[], int] = _misused
        self._spin: Callable[[], int] = _misused
        self._keep: tuple[object, ...] = ()

    def load(self, program: LoadedCollective, keep: tuple[object, ...]) -> None:
        """Set the loaded actions. ``keep``: owners of the memory that ``program`` addresses, the buffers excepted."""
        self._start = self._start_first
        self._look = program.advancing(0)
        self._spin = program.advancing(self._spins)
        self._keep = keep
        self._program = program  # last: another thread may be waiting for ``is_loaded``

    def _start_first(self) -> int:
        """Start the first run, and keep the start function of the program for later runs.

        The function is requested here and not in ``load``: the request waits until its code is compiled.
        """
        self._start = self._loaded.start
        return self._start()

    @property
    def group(self) -> Group:
        """Return the ranks among which the collective runs."""
        return self.collective.group

    @property
    def is_loaded(self) -> bool:
        """Return whether the collective has its actions and may be started."""
        return self._program is not None

    @property
    def address(self) -> int:
        """Return the address of the program, by which native code starts it and waits for it.

        Raises RunError before ``connect``.
        """
        return self._loaded.address

    @property
    def run(self) -> int:
        """Return a number that grows from run to run, by which a waiting thread tells runs apart.

        The number may be constant in a group of one, which never waits.
        """
        return self._loaded.run

    def missing(self) -> list[int]:
        """Return the ranks whose signals or messages the current run awaits; an empty list if it is not blocked."""
        return self._loaded.missing()

    def enter(self) -> None:
        """Add this collective, which native code has started, to the collectives in flight of its rank.

        Other waits of the rank then progress it until it is complete.
        """
        self._enter(self)

    # If no member is late, a run costs two native calls and a note: the status is then RunStatus.COMPLETE, which is 0.
    def start(self) -> None:
        self._note_start()
        status = self._start()
        if status == _BLOCKED or (status and not self._is_over(status)):
            self._enter(self)

    def complete(self) -> None:
        """Start a run and wait for it. The collective enters the collectives in flight only if a member is late."""
        self._note_start()
        status = self._start()
        if status <= _BLOCKED:
            status = self._spin()
        if status and not self._is_over(status):
            self._enter(self)
            self.wait()

    def poll(self) -> bool:
        return self._is_over(self._look())

    def test(self) -> bool:
        self._world.in_flight.progress()
        if not self.poll():
            return False
        self._retire(self)
        return True

    def wait(self) -> None:
        status = self._spin()
        turns = 0
        while status == _BLOCKED and turns < _TURNS:
            # Most late members are about to arrive. If ranks outnumber cores, they may need this core to do so.
            os.sched_yield()
            status = self._spin()
            turns += 1
        if status and not self._is_over(status):
            self.wait_long()
        self._retire(self)

    def wait_long(self) -> None:
        """Wait for late members, and progress all collectives in flight, for which these members may wait.

        Raises CollectiveTimeoutError if members do not arrive.
        """
        self._world.wait_until(self._progress_and_spin, self.name, self.group, self.missing)

    def fail(self, status: int) -> NoReturn:
        """Raise the RunError of ``status``, which is neither COMPLETE nor BLOCKED."""
        if status == RunStatus.OUT_OF_BOUNDS:
            raise RunError(f"{self.name}: offsets and sizes point outside of an array")
        if status == RunStatus.MESSAGES_FAILED:
            raise RunError(f"{self.name}: messages fail: {self._loaded.failure()}")
        self._loaded  # noqa: B018 - raises if no actions are loaded
        raise RunError(f"{self.name} is started again before it was waited for")

    @property
    def _loaded(self) -> LoadedCollective:
        """Return the program. Raises RunError before ``connect``."""
        if self._program is None:
            raise RunError(f"{self.name} is used before it was connected")
        return self._program

    def _progress_and_spin(self) -> bool:
        """Progress all collectives in flight and poll this one. Returns whether it is complete."""
        self._world.in_flight.progress()
        return self._is_over(self._spin())

    def _is_over(self, status: int) -> bool:
        """Return whether ``status`` is COMPLETE, not BLOCKED. Raises RunError if it is an error."""
        if status == RunStatus.COMPLETE:
            return True
        if status != RunStatus.BLOCKED:
            self.fail(status)
        return False


def _misused() -> int:
    """Return MISUSED. The function takes the place of native code until ``load``."""
    return RunStatus.MISUSED
