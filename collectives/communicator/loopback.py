"""Devices as threads of one process: a collective is a blocking rendezvous.

Starting a collective leaves a copy of the operands at the meeting place; the last member to come combines them;
waiting takes one's own results. A wait ends with an error as soon as the meeting cannot happen: when another
rank failed or ended its program, and otherwise after a timeout that names who did not come.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collectives.communicator.interface import (
    PeerFailedError,
    describe_group,
    private_memory,
    require_in,
)
from collectives.communicator.kinds import Collective, Group, Members
from collectives.communicator.reduction import Array
from collectives.communicator.status import Explains, private_position
from spmd.errors import CollectiveTimeoutError, RunError

MeetingKey = tuple[str, Group, int]
"""Instruction name, group, and how often the group has met there before."""


@dataclass
class _Meeting:
    """Operands left so far, by rank, and what came of them once all were there."""

    name: str
    group: Group
    condition: threading.Condition
    arrived: dict[int, list[Array]] = field(default_factory=dict)
    combined: Members | None = None
    taken: int = 0

    def missing(self) -> list[int]:
        return [rank for rank in self.group if rank not in self.arrived]


class LoopbackWorld:
    """All devices of one process. Thread-safe: one lock for the bookkeeping, none while combining.

    Invariants: a meeting exists from its first arrival until its last member took the results or the world failed;
    every member of a group calls the same collectives on it in the same order.
    """

    def __init__(self, size: int, timeout_seconds: float = 300.0) -> None:
        self.size = size
        self.timeout_seconds = timeout_seconds
        self.spins = 500 if size <= (os.cpu_count() or 1) else 10
        self._lock = threading.Lock()
        self._meetings: dict[MeetingKey, _Meeting] = {}
        self._visits: list[Counter[tuple[str, Group]]] = [Counter() for _ in range(size)]
        self._calls = [0] * size
        self._shared: dict[tuple[int, Group], tuple[Array, set[int]]] = {}
        self._notes = ["has not called a collective"] * size
        self._left: dict[int, str] = {}
        self._failure: PeerFailedError | None = None

    def communicator(self, rank: int) -> LoopbackCommunicator:
        if not 0 <= rank < self.size:
            raise RunError(f"rank {rank} does not exist in a world of {self.size}")
        return LoopbackCommunicator(self, rank)

    def abort(self, rank: int, error: BaseException) -> None:
        """``rank`` failed: every wait, now or later, raises PeerFailedError. The first failure stands."""
        with self._lock:
            if self._failure is None:
                self._failure = PeerFailedError(f"rank {rank} failed: {error}", rank)
            self._wake_all()

    def leave(self, rank: int) -> None:
        """``rank`` ended its program: whoever waits for it waits in vain and is told so."""
        with self._lock:
            self._left[rank] = "ended its program"
            self._wake_all()

    def rejoin(self) -> None:
        """Every rank begins a program anew."""
        with self._lock:
            self._left.clear()

    def note(self, rank: int, text: str) -> None:
        self._notes[rank] = text

    def allocate_shared(self, rank: int, num_bytes: int, group: Group) -> Array:
        """What the first of ``group`` to come has made; kept here until all have it."""
        with self._lock:
            key = (self._calls[rank], group)
            self._calls[rank] += 1
            memory, takers = self._shared.setdefault(key, (private_memory(num_bytes), set()))
            takers.add(rank)
            if takers == set(group):
                del self._shared[key]
        if memory.nbytes != num_bytes:
            sizes = f"{num_bytes} bytes on rank {rank}, {memory.nbytes} elsewhere"
            raise RunError(f"group {describe_group(group)} shares memory: {sizes}")
        return memory

    def arrive(
        self, rank: int, name: str, collective: Collective, operands: Sequence[Array]
    ) -> MeetingKey:
        """Leave copies of the operands; the last to come combines them."""
        group = collective.group
        copies = [operand.copy() for operand in operands]
        with self._lock:
            key = (name, group, self._visits[rank][name, group])
            self._visits[rank][name, group] += 1
            meeting = self._meetings.get(key)
            if meeting is None:
                meeting = _Meeting(name, group, threading.Condition(self._lock))
                self._meetings[key] = meeting
            meeting.arrived[rank] = copies
            complete = len(meeting.arrived) == len(group)
        if complete:
            combined = collective.combine([meeting.arrived[member] for member in group])
            with self._lock:
                meeting.combined = combined
                meeting.condition.notify_all()
        return key

    def is_complete(self, key: MeetingKey) -> bool:
        with self._lock:
            self._raise_if_failed()
            return self._meetings[key].combined is not None

    def await_meeting(self, rank: int, key: MeetingKey) -> Members:
        """Block until all members came; raises what made that impossible."""
        deadline = time.monotonic() + self.timeout_seconds
        with self._lock:
            meeting = self._meetings[key]
            while meeting.combined is None:
                self._raise_if_failed()
                gone = [member for member in meeting.missing() if member in self._left]
                remaining = deadline - time.monotonic()
                if gone or remaining <= 0:
                    raise CollectiveTimeoutError(self._why_not(rank, meeting, bool(gone)))
                meeting.condition.wait(remaining)
            meeting.taken += 1
            if meeting.taken == len(meeting.group):
                del self._meetings[key]
            return meeting.combined

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise PeerFailedError(str(self._failure), self._failure.rank)

    def _wake_all(self) -> None:
        for meeting in self._meetings.values():
            meeting.condition.notify_all()

    def _why_not(self, rank: int, meeting: _Meeting, gone: bool) -> str:
        missing = meeting.missing()
        whereabouts = "; ".join(
            f"rank {member} {self._left.get(member, self._notes[member])}" for member in missing[:8]
        )
        waited = "" if gone else f" after {self.timeout_seconds:g} s"
        return (
            f"[rank {rank}/{self.size}] {meeting.name}: group {describe_group(meeting.group)} cannot meet{waited}: "
            f"missing {describe_group(tuple(missing))} ({whereabouts})"
        )


@dataclass(frozen=True)
class LoopbackCommunicator:
    """One rank's end of a LoopbackWorld (a Communicator)."""

    world: LoopbackWorld
    rank: int
    position: memoryview = field(default_factory=private_position, compare=False)

    @property
    def size(self) -> int:
        return self.world.size

    @property
    def spins(self) -> int:
        return self.world.spins

    def allocate(self, num_bytes: int) -> Array:
        return private_memory(num_bytes)

    def allocate_shared(self, num_bytes: int, group: Group) -> Array:
        require_in(self.rank, group, "memory to share")
        return self.world.allocate_shared(self.rank, num_bytes, group)

    def bind(
        self, collective: Collective, name: str, operands: Sequence[Array], results: Sequence[Array]
    ) -> LoopbackCollective:
        require_in(self.rank, collective.group, name)
        return LoopbackCollective(self, collective, name, tuple(operands), tuple(results))

    def connect(self) -> None:
        """Nothing to join: a meeting place costs nothing."""

    def note(self, text: str) -> None:
        self.world.note(self.rank, text)

    def enroll(self, program: Explains) -> int:
        """The number that says nothing: nobody reads a thread's position."""
        return 1

    def barrier(self) -> None:
        self.all_gather_bytes(b"")

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        everyone = _Exchange(tuple(range(self.size)))
        key = self.world.arrive(self.rank, "exchange", everyone, [np.frombuffer(data, np.uint8)])
        return [member[0].tobytes() for member in self.world.await_meeting(self.rank, key)]

    def gather_bytes(self, data: bytes, root: int = 0) -> list[bytes] | None:
        gathered = self.all_gather_bytes(data)
        return gathered if self.rank == root else None

    def broadcast_bytes(self, data: bytes | None, root: int = 0) -> bytes:
        return self.all_gather_bytes(data or b"")[root]


class LoopbackCollective:
    """One rank's part in a rendezvous that takes place any number of times (a BoundCollective)."""

    def __init__(
        self,
        communicator: LoopbackCommunicator,
        collective: Collective,
        name: str,
        operands: tuple[Array, ...],
        results: tuple[Array, ...],
    ) -> None:
        self._communicator = communicator
        self._collective = collective
        self._index = collective.group.index(communicator.rank)
        self._name = name
        self._operands = operands
        self._results = results
        #: The meeting under way, until its results have been taken.
        self._meeting: MeetingKey | None = None

    def start(self) -> None:
        if self._meeting is not None:
            raise RunError(f"{self._name} is started again before it was waited for")
        communicator = self._communicator
        self._meeting = communicator.world.arrive(
            communicator.rank, self._name, self._collective, self._operands
        )
        communicator.note(f"last started {self._name}")

    def test(self) -> bool:
        if self._meeting is not None and self._communicator.world.is_complete(self._meeting):
            self.wait()
        return self._meeting is None

    def wait(self) -> None:
        if self._meeting is None:
            return
        communicator = self._communicator
        communicator.note(f"waits in {self._name}")
        combined = communicator.world.await_meeting(communicator.rank, self._meeting)
        self._collective.deliver(combined, self._index, self._results)
        communicator.note(f"has passed {self._name}")
        self._meeting = None


@dataclass(frozen=True)
class _Exchange(Collective):
    """Members read each other's bytes, which may differ in length; nothing is delivered."""

    kind = "exchange"

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        raise RunError("an exchange has no results")
