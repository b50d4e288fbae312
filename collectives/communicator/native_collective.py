"""A collective of native actions, started and awaited; Python runs only if a member is late."""

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
"""Looks at who is late, the core given up before each, until a wait is a long one."""


class NativeCollective:
    """A BoundCollective. Between ``start`` and the end of ``wait`` its peers use its buffers, afterwards never."""

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
        """``spins``: how often to look again at a member that is late before giving up the core.

        needs_progress: its actions wait for messages, so it progresses only while it is polled.
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
        """``keep``: the memory that the program addresses, beside the buffers."""
        self._start = self._start_first
        self._look = program.advancing(0)
        self._spin = program.advancing(self._spins)
        self._keep = keep
        self._program = program  # last, since another thread may look

    def _start_first(self) -> int:
        """Only now is the program asked how: its code may have been compiled since ``load``."""
        self._start = self._loaded.start
        return self._start()

    @property
    def group(self) -> Group:
        return self.collective.group

    @property
    def is_loaded(self) -> bool:
        return self._program is not None

    @property
    def address(self) -> int:
        """The address of its actions, for native code that starts it and waits for it. Raises RunError before
        ``connect``."""
        return self._loaded.address

    @property
    def run(self) -> int:
        """A number that differs from run to run."""
        return self._loaded.run

    def missing(self) -> list[int]:
        """The members for which it waits."""
        return self._loaded.missing()

    def enter(self) -> None:
        """Native code has started it: from here on the world lets it go on, too, until it is over."""
        self._enter(self)

    # Where nothing is amiss, start and wait cost two calls of native code and a note: an RunStatus is 0 then.
    def start(self) -> None:
        self._note_start()
        status = self._start()
        if status == _BLOCKED or (status and not self._is_over(status)):
            self._enter(self)

    def complete(self) -> None:
        """Start and wait, with nothing to do in between: it is in flight only if a member is late."""
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
            # Most who are late are about to come: on this very core, where ranks outnumber cores.
            os.sched_yield()
            status = self._spin()
            turns += 1
        if status and not self._is_over(status):
            self.wait_long()
        self._retire(self)

    def wait_long(self) -> None:
        """Wait for late members, and progress all other collectives in flight, which their peers may wait for."""
        self._world.wait_until(self._progress_and_spin, self.name, self.group, self.missing)

    def fail(self, status: int) -> NoReturn:
        """RunError for an ``status`` that is neither COMPLETE nor BLOCKED."""
        if status == RunStatus.OUT_OF_BOUNDS:
            raise RunError(f"{self.name}: offsets and sizes point outside of an array")
        if status == RunStatus.MESSAGES_FAILED:
            raise RunError(f"{self.name}: messages fail: {self._loaded.failure()}")
        self._loaded  # noqa: B018 - which raises where there are no actions
        raise RunError(f"{self.name} is started again before it was waited for")

    @property
    def _loaded(self) -> LoadedCollective:
        if self._program is None:
            raise RunError(f"{self.name} is used before it was connected")
        return self._program

    def _progress_and_spin(self) -> bool:
        self._world.in_flight.progress()
        return self._is_over(self._spin())

    def _is_over(self, status: int) -> bool:
        if status == RunStatus.COMPLETE:
            return True
        if status != RunStatus.BLOCKED:
            self.fail(status)
        return False


def _misused() -> int:
    """Stands for native code until there is some."""
    return RunStatus.MISUSED
