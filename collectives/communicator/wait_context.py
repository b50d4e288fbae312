"""Waiting for collectives: those of a rank in flight, what they use of their communicator, and polling."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from collectives.communicator.group import Group


class InFlight(Protocol):
    """A collective that has been started and has not ended."""

    def poll(self) -> bool:
        """Make what progress can be made without waiting; True when it is over."""
        ...


class InFlightSet:
    """Whoever waits for one collective lets all others go on, too: peers may wait for them."""

    def __init__(self) -> None:
        #: In the order in which they were started.
        self._pending: dict[InFlight, None] = {}

    def enter(self, collective: InFlight) -> None:
        """``collective`` is in flight from here on, until ``retire``."""
        self._pending[collective] = None

    def retire(self, collective: InFlight) -> None:
        """It is over, and may have been known to be."""
        self._pending.pop(collective, None)

    def progress(self) -> None:
        """Let every one go on; those that are over are forgotten."""
        for pending in tuple(self._pending):
            if pending.poll():
                self.retire(pending)


class WaitingWorld(Protocol):
    """A communicator, as its collectives see it."""

    @property
    def rank(self) -> int: ...

    @property
    def in_flight(self) -> InFlightSet:
        """Those of this rank."""
        ...

    def note(self, text: str) -> None:
        """Leave word of what this rank does."""
        ...

    def prepared_note(self, text: str) -> Callable[[], None]:
        """The same, to be left again and again at little cost."""
        ...

    def wait_until(
        self, done: Callable[[], bool], what: str, group: Group, late: Callable[[], Sequence[int]]
    ) -> None:
        """Ask ``done`` until it says True, with notes for the peers.

        CollectiveTimeoutError says which of ``group`` did not come to ``what``, and where they were last seen, when
        the ranks that ``late`` names have shown no sign of life for too long.
        """
        ...


# ---- polling for something that is not announced, without taking the core from the process waited for


_SPINS_BEFORE_SLEEP = 50  # some 150 us; more takes the cores from the ranks that are waited for
_SLEEP_SECONDS = 50e-6


def poll_until(done: Callable[[], bool], seconds: float) -> bool:
    """Ask ``done`` until it says True; False after ``seconds``."""
    deadline = time.monotonic() + seconds
    return poll_while(done, lambda: time.monotonic() <= deadline)


def poll_while(done: Callable[[], bool], has_hope: Callable[[], bool]) -> bool:
    """Ask ``done`` until it says True; False as soon as there is no hope, which is asked each time it has slept.

    Yields the core at once and soon sleeps: ranks may outnumber cores, and the one that all wait for needs one.
    """
    spins = 0
    while not done():
        spins += 1
        if spins < _SPINS_BEFORE_SLEEP:
            os.sched_yield()
            continue
        time.sleep(_SLEEP_SECONDS)
        if not has_hope():
            return False
    return True


def ask_while(done: Callable[[], bool], has_hope: Callable[[], bool]) -> bool:
    """The same where ``done`` itself sleeps for a while."""
    while not done():
        if not has_hope():
            return False
    return True
