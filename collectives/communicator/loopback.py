"""Devices of one process.

With an engine, collectives are native steps over the devices' memory (``process_memory.py``). Without one, and for
reductions that it has no code for, a collective is a rendezvous: starting it leaves a copy of the operands at the
meeting place; the last member to come combines them; waiting takes one's own results.

A wait ends with an error as soon as the meeting cannot happen: when another rank failed or ended its program, and
otherwise after a timeout that names who did not come.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from collectives.communicator.interface import (
    BoundCollective,
    PeerFailedError,
    describe_group,
    private_memory,
    require_in,
)
from collectives.communicator.kinds import Collective, Group, Members
from collectives.communicator.polling import poll_while
from collectives.communicator.process_memory import ProcessMemory
from collectives.communicator.reduction import Array
from collectives.communicator.shared_buffers import Buffers
from collectives.communicator.shared_steps import StepEngine
from collectives.communicator.status import (
    NO_THUNK,
    PROGRAM,
    STARTED,
    Explains,
    place_of,
    private_position,
    started_last,
)
from collectives.communicator.waiting import InFlight
from spmd.errors import CollectiveTimeoutError, RunError

_SPINS, _SPINS_OVERSUBSCRIBED = 500, 10
"""Looks for a late member before the core is given up: where every device has a core, and where they take turns."""

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

    def __init__(
        self, size: int, timeout_seconds: float = 300.0, engine: StepEngine | None = None
    ) -> None:
        """``engine``: what runs collectives over the devices' memory."""
        self.size = size
        self.timeout_seconds = timeout_seconds
        self.spins = _SPINS if size <= (os.cpu_count() or 1) else _SPINS_OVERSUBSCRIBED
        self.memory = None if engine is None else ProcessMemory(size, engine, self.spins)
        self._lock = threading.Lock()
        self._meetings: dict[MeetingKey, _Meeting] = {}
        self._visits: list[Counter[tuple[str, Group]]] = [Counter() for _ in range(size)]
        self._calls = [0] * size
        self._shared: dict[tuple[int, Group], tuple[Array, set[int]]] = {}
        self._notes = ["has not called a collective"] * size
        self._left: dict[int, str] = {}
        self._failure: PeerFailedError | None = None
        self._ends = [LoopbackCommunicator(self, rank) for rank in range(size)]

    def communicator(self, rank: int) -> LoopbackCommunicator:
        if not 0 <= rank < self.size:
            raise RunError(f"rank {rank} does not exist in a world of {self.size}")
        return self._ends[rank]

    def abort(self, rank: int, error: BaseException) -> None:
        """``rank`` failed: every wait, now or later, raises PeerFailedError. The first failure stands."""
        with self._lock:
            if self._failure is None:
                self._failure = PeerFailedError(f"rank {rank} failed: {error}", rank)
            self._wake_all()

    def raise_if_failed(self) -> None:
        """PeerFailedError where a rank has failed."""
        if self._failure is not None:
            raise PeerFailedError(str(self._failure), self._failure.rank)

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
            self.raise_if_failed()
            return self._meetings[key].combined is not None

    def missing(self, key: MeetingKey) -> list[int]:
        with self._lock:
            return self._meetings[key].missing()

    def await_meeting(self, rank: int, key: MeetingKey) -> Members:
        """Block until all members came; raises what made that impossible."""
        deadline = time.monotonic() + self.timeout_seconds
        with self._lock:
            meeting = self._meetings[key]
            while meeting.combined is None:
                self.raise_if_failed()
                missing, remaining = meeting.missing(), deadline - time.monotonic()
                self.require_hope(rank, meeting.name, meeting.group, missing, remaining)
                meeting.condition.wait(remaining)
            meeting.taken += 1
            if meeting.taken == len(meeting.group):
                del self._meetings[key]
            return meeting.combined

    def _wake_all(self) -> None:
        for meeting in self._meetings.values():
            meeting.condition.notify_all()

    def require_hope(
        self, rank: int, name: str, group: Group, missing: Sequence[int], seconds_left: float
    ) -> None:
        """CollectiveTimeoutError where ``rank`` waits in vain: a missing one has left, or no time is left."""
        gone = [member for member in missing if member in self._left]
        if not gone and seconds_left > 0:
            return
        whereabouts = "; ".join(
            f"rank {member} {self._whereabouts(member)}" for member in missing[:8]
        )
        waited = "" if gone else f" after {self.timeout_seconds:g} s"
        raise CollectiveTimeoutError(
            f"[rank {rank}/{self.size}] {name}: group {describe_group(group)} cannot meet{waited}: "
            f"missing {describe_group(tuple(missing))} ({whereabouts})"
        )

    def _whereabouts(self, rank: int) -> str:
        """Why it does not come, or what it said or started last and where it is in its program."""
        if rank in self._left:
            return self._left[rank]
        end = self.communicator(rank)
        said = started_last(end.position, end.program) or self._notes[rank]
        return ", ".join([said, *place_of(end.position, end.program)])


@dataclass(frozen=True)
class LoopbackCommunicator:
    """One rank's end of a LoopbackWorld (a Communicator)."""

    world: LoopbackWorld
    rank: int
    position: memoryview = field(default_factory=private_position, compare=False)
    _in_flight: dict[InFlight, None] = field(default_factory=dict, compare=False)
    _programs: list[weakref.ref[Explains]] = field(default_factory=list, compare=False)

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
    ) -> BoundCollective:
        require_in(self.rank, collective.group, name)
        memory, buffers = self.world.memory, Buffers(tuple(operands), tuple(results))
        if memory is not None and memory.can_share(collective, buffers):
            return memory.bind(self, collective, name, buffers)
        return LoopbackCollective(self, collective, name, tuple(operands), tuple(results))

    def connect(self) -> None:
        """Nothing to join: what has been bound is linked when its last member has bound it."""

    def note(self, text: str) -> None:
        self.world.note(self.rank, text)
        self.position[STARTED] = NO_THUNK

    def prepared_note(self, text: str) -> Callable[[], None]:
        return partial(self.note, text)

    def enroll(self, program: Explains) -> int:
        self._programs.append(weakref.ref(program))
        return len(self._programs)

    @property
    def program(self) -> Explains | None:
        """The one that it runs."""
        number = self.position[PROGRAM]
        return self._programs[number - 1]() if number else None

    def progress(self) -> None:
        """Let every collective in flight go on; those that are over are forgotten."""
        for pending in tuple(self._in_flight):
            if pending.poll():
                self.retire(pending)

    def enter(self, collective: InFlight) -> None:
        self._in_flight[collective] = None

    def retire(self, collective: InFlight) -> None:
        self._in_flight.pop(collective, None)

    def wait_until(
        self, done: Callable[[], bool], what: str, group: Group, late: Callable[[], Sequence[int]]
    ) -> None:
        """PeerFailedError, besides, when a rank of the world has failed."""
        self.note(f"waits in {what}")
        world, deadline = self.world, time.monotonic() + self.world.timeout_seconds

        def has_hope() -> bool:
            world.raise_if_failed()
            seconds_left = deadline - time.monotonic()
            world.require_hope(self.rank, what, group, late(), seconds_left)
            return True

        poll_while(done, has_hope)
        self.note(f"has passed {what}")

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
        """What tells one run from the next."""
        return self._meeting

    def missing(self) -> list[int]:
        return [] if self._meeting is None else self._communicator.world.missing(self._meeting)

    def start(self) -> None:
        if self._meeting is not None:
            raise RunError(f"{self.name} is started again before it was waited for")
        communicator = self._communicator
        self._meeting = communicator.world.arrive(
            communicator.rank, self.name, self._collective, self._operands
        )
        communicator.note(f"last started {self.name}")

    def test(self) -> bool:
        if self._meeting is not None and self._communicator.world.is_complete(self._meeting):
            self.wait()
        return self._meeting is None

    def wait(self) -> None:
        if self._meeting is None:
            return
        communicator = self._communicator
        communicator.note(f"waits in {self.name}")
        combined = communicator.world.await_meeting(communicator.rank, self._meeting)
        self._collective.deliver(combined, self._index, self._results)
        communicator.note(f"has passed {self.name}")
        self._meeting = None


@dataclass(frozen=True)
class _Exchange(Collective):
    """Members read each other's bytes, which may differ in length; nothing is delivered."""

    kind = "exchange"

    def deliver(self, combined: Members, index: int, results: Sequence[Array]) -> None:
        raise RunError("an exchange has no results")
