"""Interface through which collectives use the communicator that bound them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from collectives.communicator.group import Group
from collectives.communicator.in_flight import InFlightSet


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
