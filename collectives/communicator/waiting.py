"""What collectives and their communicator know of each other while they are in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from collectives.communicator.kinds import Group


class InFlight(Protocol):
    """A collective that has been started and has not ended."""

    def poll(self) -> bool:
        """Make what progress can be made without waiting; True when it is over."""
        ...


class WaitingWorld(Protocol):
    """What a collective asks of the communicator that it was bound by."""

    @property
    def rank(self) -> int: ...

    def note(self, text: str) -> None:
        """Leave word of what this rank does."""
        ...

    def prepared_note(self, text: str) -> Callable[[], None]:
        """The same, to be left again and again at little cost."""
        ...

    def progress(self) -> None:
        """Let everything in flight go on."""
        ...

    def enter(self, collective: InFlight) -> None:
        """``collective`` is in flight from here on, until ``retire``."""
        ...

    def retire(self, collective: InFlight) -> None: ...

    def wait_until(
        self, done: Callable[[], bool], what: str, group: Group, late: Callable[[], Sequence[int]]
    ) -> None:
        """Ask ``done`` until it says True, with notes for the peers.

        CollectiveTimeoutError says which of ``group`` did not come to ``what``, and where they were last seen, when
        the ranks that ``late`` names have shown no sign of life for too long.
        """
        ...
