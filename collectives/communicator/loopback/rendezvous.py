"""Collectives between devices of one process as meetings, in Python alone.

Starting one leaves a copy of the operands at the meeting place; the last member to come combines them; waiting takes
one's own results.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from collectives.communicator.group import Group
from collectives.communicator.kinds.op import Collective, Members
from collectives.communicator.reduction import Array
from collectives.communicator.wait_context import WaitingWorld
from spmd.errors import RunError

MeetingKey = tuple[str, Group, int]
"""Instruction name, group, and how often the group has met there before."""


@dataclass
class _Meeting:
    """Operands left so far, by rank, and what came of them once all were there."""

    group: Group
    arrived: dict[int, list[Array]] = field(default_factory=dict)
    combined: Members | None = None
    taken: int = 0


class Meetings:
    """All meetings of a world. Thread-safe: one lock for the bookkeeping, none while combining.

    Invariants: a meeting exists from its first arrival until its last member took the results or the world failed;
    every member of a group calls the same collectives on it in the same order.
    """

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._open: dict[MeetingKey, _Meeting] = {}
        self._visits: list[Counter[tuple[str, Group]]] = [Counter() for _ in range(size)]

    def __len__(self) -> int:
        return len(self._open)

    def arrive(
        self, rank: int, name: str, collective: Collective, operands: Sequence[Array]
    ) -> MeetingKey:
        """Leave copies of the operands; the last to come combines them."""
        group = collective.group
        copies = [operand.copy() for operand in operands]
        with self._lock:
            key = (name, group, self._visits[rank][name, group])
            self._visits[rank][name, group] += 1
            meeting = self._open.setdefault(key, _Meeting(group))
            meeting.arrived[rank] = copies
            complete = len(meeting.arrived) == len(group)
        if complete:
            meeting.combined = collective.combine([meeting.arrived[member] for member in group])
        return key

    def is_complete(self, key: MeetingKey) -> bool:
        with self._lock:
            return self._open[key].combined is not None

    def missing(self, key: MeetingKey) -> list[int]:
        with self._lock:
            meeting = self._open[key]
            return [rank for rank in meeting.group if rank not in meeting.arrived]

    def take(self, key: MeetingKey) -> Members:
        """Return the result of a complete rendezvous, once for each member."""
        with self._lock:
            meeting = self._open[key]
            meeting.taken += 1
            if meeting.taken == len(meeting.group):
                del self._open[key]
        assert meeting.combined is not None
        return meeting.combined


class RendezvousCollective:
    """One rank's part in a rendezvous that takes place any number of times (a BoundCollective)."""

    def __init__(
        self,
        world: WaitingWorld,
        meetings: Meetings,
        collective: Collective,
        name: str,
        operands: Sequence[Array],
        results: Sequence[Array],
    ) -> None:
        self._world = world
        self._meetings = meetings
        self._collective = collective
        self._index = collective.group.index(world.rank)
        self.name = name
        self._operands = operands
        self._results = results
        #: The meeting under way, until its results have been taken.
        self._meeting: MeetingKey | None = None

    @property
    def group(self) -> Group:
        return self._collective.group

    @property
    def run(self) -> object:
        """A value that differs from run to run."""
        return self._meeting

    def missing(self) -> list[int]:
        return [] if self._meeting is None else self._meetings.missing(self._meeting)

    def start(self) -> None:
        if self._meeting is not None:
            raise RunError(f"{self.name} is started again before it was waited for")
        self._meeting = self._meetings.arrive(
            self._world.rank, self.name, self._collective, self._operands
        )
        self._world.note(f"last started {self.name}")

    def test(self) -> bool:
        self._world.in_flight.progress()
        if self._meeting is not None and self._meetings.is_complete(self._meeting):
            self._deliver(self._meeting)
        return self._meeting is None

    def wait(self) -> None:
        if self._meeting is not None:
            meeting, meetings = self._meeting, self._meetings
            self._world.wait_until(
                lambda: meetings.is_complete(meeting), self.name, self.group, self.missing
            )
            self._deliver(meeting)

    def complete(self) -> None:
        self.start()
        self.wait()

    def _deliver(self, meeting: MeetingKey) -> None:
        self._collective.deliver(self._meetings.take(meeting), self._index, self._results)
        self._meeting = None
