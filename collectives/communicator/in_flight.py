"""The collectives of one rank that have been started and have not ended."""

from __future__ import annotations

from typing import Protocol


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
