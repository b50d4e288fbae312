"""Waits for collectives: the collectives of a rank in flight, what they need of their communicator, and polling."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from collectives.communicator.group import Group


class InFlight(Protocol):
    """A collective that has been started and is not known to be complete."""

    def poll(self) -> bool:
        """Progress the collective without blocking. Returns whether it is complete."""
        ...


class InFlightSet:
    """The collectives of one rank that are in flight.

    A rank that waits for one of them progresses all, since its peers may wait for the others.
    """

    def __init__(self) -> None:
        #: The keys are in the order in which the collectives were started.
        self._pending: dict[InFlight, None] = {}

    def enter(self, collective: InFlight) -> None:
        """Add ``collective``, which has been started. It stays in the set until ``retire``."""
        self._pending[collective] = None

    def retire(self, collective: InFlight) -> None:
        """Remove ``collective``, which is complete. A collective outside the set is ignored."""
        self._pending.pop(collective, None)

    def progress(self) -> None:
        """Poll every collective in the set, and remove those that are complete."""
        for pending in tuple(self._pending):
            if pending.poll():
                self.retire(pending)


class WaitingWorld(Protocol):
    """Interface of a communicator for the collectives that are bound by it."""

    @property
    def rank(self) -> int: ...

    @property
    def in_flight(self) -> InFlightSet:
        """Return the collectives of this rank that are in flight."""
        ...

    def note(self, text: str) -> None:
        """Record ``text``, which describes the activity of this rank, for error messages of its peers."""
        ...

    def prepared_note(self, text: str) -> Callable[[], None]:
        """Return a function that does what ``note(text)`` does, at little cost per call."""
        ...

    def wait_until(
        self, done: Callable[[], bool], what: str, group: Group, late: Callable[[], Sequence[int]]
    ) -> None:
        """Poll ``done`` until it returns True. Notes before and after tell the peers that this rank waits.

        ``what`` names the wait, and ``late`` returns the ranks of ``group`` that are known not to have arrived. Raises
        CollectiveTimeoutError, which names these ranks and their last positions, if they have ended or the timeout of
        the communicator is over; a communicator may extend the timeout while they make progress.
        """
        ...


# ---- polling for a condition that no wake-up announces, without occupying the core that the awaited process needs


_SPINS_BEFORE_SLEEP = 50  # some 150 us; more would take cores from the awaited ranks
_SLEEP_SECONDS = 50e-6


def poll_until(done: Callable[[], bool], seconds: float) -> bool:
    """Poll ``done`` until it returns True, for at most ``seconds``. Returns False if the time is over."""
    deadline = time.monotonic() + seconds
    return poll_while(done, lambda: time.monotonic() <= deadline)


def poll_while(done: Callable[[], bool], has_hope: Callable[[], bool]) -> bool:
    """Poll ``done`` until it returns True. Returns False if ``has_hope``, which is called after each sleep, does.

    The thread yields its core after the first polls and sleeps after later ones: ranks may outnumber cores, and the
    awaited rank needs one.
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
    """Poll ``done`` until it returns True. Returns False if ``has_hope``, which is called after each poll, does.

    Unlike ``poll_while``, this function does not sleep: ``done`` sleeps for a while itself.
    """
    while not done():
        if not has_hope():
            return False
    return True
