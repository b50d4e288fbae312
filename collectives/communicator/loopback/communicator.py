"""Communicators of devices that are threads of one process.

With an engine, collectives are native actions over the devices' memory (``process_memory.py``). Without an engine, and
for reductions for which the engine has no code, they are rendezvous in Python (``rendezvous.py``).

A wait raises an error as soon as the collective cannot complete, because another rank has failed or has ended its
program, and otherwise after a timeout. The error names the ranks that are missing.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property, partial

import numpy as np

from collectives.communicator.actions.engine import CollectiveEngine
from collectives.communicator.actions.shared_buffers import Buffers, private_memory
from collectives.communicator.group import Array, Group, describe_group, require_in
from collectives.communicator.interface import BoundCollective, PeerFailedError
from collectives.communicator.kinds.op import Collective
from collectives.communicator.liveness.status_table import (
    NO_THUNK,
    PROGRAM,
    STARTED,
    Explains,
    describe_position,
    private_position,
    started_last,
)
from collectives.communicator.loopback.process_memory import ProcessMemory
from collectives.communicator.loopback.rendezvous import RendezvousCollective, RendezvousTable
from collectives.communicator.wait_context import InFlightSet, poll_while
from spmd.errors import CollectiveTimeoutError, RunError
from spmd.lazy_dataclass import dataclass

_SPINS, _SPINS_OVERSUBSCRIBED = 500, 10
"""Number of polls before a waiting thread yields its core, if each device has a core and if devices share cores."""


class LoopbackWorld:
    """The world of all devices of one process. It is thread-safe."""

    def __init__(
        self,
        size: int,
        timeout_seconds: float = 300.0,
        engine: CollectiveEngine | None = None,
    ) -> None:
        """Create a world of ``size`` devices.

        ``timeout_seconds`` is the time for which a rank waits for others. ``engine`` runs collectives over the devices'
        memory; without an engine they run in Python.
        """
        self.size = size
        self.timeout_seconds = timeout_seconds
        self.spins = _SPINS if size <= (os.cpu_count() or 1) else _SPINS_OVERSUBSCRIBED
        self.memory = None if engine is None else ProcessMemory(size, engine, self.spins)
        self._lock = threading.Lock()
        self.rendezvous_table = RendezvousTable(size)
        self._calls = [0] * size
        self._shared: dict[tuple[int, Group], tuple[Array, set[int]]] = {}
        self._notes = ["has not called a collective"] * size
        self._left: dict[int, str] = {}
        self._failure: PeerFailedError | None = None
        self._ends = [LoopbackCommunicator(self, rank, private_position()) for rank in range(size)]

    @cached_property
    def cores(self) -> int:
        """Return the number of cores of this process for each device (>= 1)."""
        return max(1, len(os.sched_getaffinity(0)) // self.size)

    def communicator(self, rank: int) -> LoopbackCommunicator:
        """Return the communicator of ``rank``. Raises RunError if there is no such rank."""
        if not 0 <= rank < self.size:
            raise RunError(f"rank {rank} does not exist in a world of {self.size}")
        return self._ends[rank]

    def abort(self, rank: int, error: BaseException) -> None:
        """Record that ``rank`` failed with ``error``. Only the first failure is recorded.

        All present and future waits raise PeerFailedError.
        """
        with self._lock:
            if self._failure is None:
                self._failure = PeerFailedError(f"rank {rank} failed: {error}", rank)

    def raise_if_failed(self) -> None:
        """Raise PeerFailedError if a rank has failed."""
        if self._failure is not None:
            raise PeerFailedError(str(self._failure), self._failure.rank)

    def leave(self, rank: int) -> None:
        """Record that ``rank`` ended its program. Ranks that wait for ``rank`` raise CollectiveTimeoutError."""
        with self._lock:
            self._left[rank] = "ended its program"

    def rejoin(self) -> None:
        """Forget which ranks ended their programs. Call it before the ranks begin a new program."""
        with self._lock:
            self._left.clear()

    def note(self, rank: int, text: str) -> None:
        """Replace the note of ``rank``."""
        self._notes[rank] = text

    def allocate_shared(self, rank: int, num_bytes: int, group: Group) -> Array:
        """Return memory that all members of ``group`` share (``Communicator.allocate_shared``).

        The first member to call allocates it. The world refers to it until all members have called. Raises RunError if
        members ask for different sizes.
        """
        with self._lock:
            key = (self._calls[rank], group)
            self._calls[rank] += 1
            if key not in self._shared:
                self._shared[key] = (private_memory(num_bytes), set())
            memory, takers = self._shared[key]
            takers.add(rank)
            if takers == set(group):
                del self._shared[key]
        if memory.nbytes != num_bytes:
            sizes = f"{num_bytes} bytes on rank {rank}, {memory.nbytes} elsewhere"
            raise RunError(f"group {describe_group(group)} shares memory: {sizes}")
        return memory

    def require_hope(
        self, rank: int, name: str, group: Group, missing: Sequence[int], seconds_left: float
    ) -> None:
        """Raise CollectiveTimeoutError if one of the ``missing`` ranks has ended its program or no time is left.

        ``rank`` is the rank that waits, in the collective ``name`` of ``group``.
        """
        gone = [member for member in missing if member in self._left]
        if not gone and seconds_left > 0:
            return
        last_position = "; ".join(
            f"rank {member} {self._last_position(member)}" for member in missing[:8]
        )
        limit = "cannot complete" if gone else f"did not complete within {self.timeout_seconds:g} s"
        raise CollectiveTimeoutError(
            f"[rank {rank}/{self.size}] {name}: group {describe_group(group)} {limit}: "
            f"missing {describe_group(tuple(missing))} ({last_position})"
        )

    def _last_position(self, rank: int) -> str:
        """Describe that ``rank`` ended its program, or its last note or collective and its position in the program."""
        if rank in self._left:
            return self._left[rank]
        end = self.communicator(rank)
        said = started_last(end.position, end.program) or self._notes[rank]
        return ", ".join([said, *describe_position(end.position, end.program)])


@dataclass(frozen=True)
class LoopbackCommunicator:
    """The Communicator of one rank of a LoopbackWorld."""

    world: LoopbackWorld
    rank: int
    position: memoryview = field(compare=False)
    in_flight: InFlightSet = field(default_factory=InFlightSet, compare=False)
    _programs: list[weakref.ref[Explains]] = field(default_factory=list, compare=False)

    @property
    def size(self) -> int:
        return self.world.size

    @property
    def cores(self) -> int:
        return self.world.cores

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
        return RendezvousCollective(
            self, self.world.rendezvous_table, collective, name, buffers.operands, buffers.results
        )

    def connect(self) -> None:
        """Do nothing: a collective is linked when its last member binds it."""

    def note(self, text: str) -> None:
        self.world.note(self.rank, text)
        self.position[STARTED] = NO_THUNK

    def prepared_note(self, text: str) -> Callable[[], None]:
        return partial(self.note, text)

    def register_program(self, program: Explains) -> int:
        self._programs.append(weakref.ref(program))
        return len(self._programs)

    @property
    def program(self) -> Explains | None:
        """Return the program that the rank runs; None if there is none or it no longer exists."""
        number = self.position[PROGRAM]
        return self._programs[number - 1]() if number else None

    def wait_until(
        self, done: Callable[[], bool], what: str, group: Group, late: Callable[[], Sequence[int]]
    ) -> None:
        """Poll ``done`` until it returns True (``WaitingWorld.wait_until``).

        Raises CollectiveTimeoutError if a late rank has ended its program or the timeout expires, and PeerFailedError
        if a rank of the world has failed.
        """
        self.note(f"waits in {what}")
        world, deadline = self.world, time.monotonic() + self.world.timeout_seconds

        def has_hope() -> bool:
            world.raise_if_failed()
            seconds_left = deadline - time.monotonic()
            world.require_hope(self.rank, what, group, late(), seconds_left)
            return True

        poll_while(done, has_hope)
        self.note(f"has passed {what}")

    def keep_to_own_cores(self) -> None:
        """Do nothing: the thread team that runs the devices binds its threads."""

    def barrier(self) -> None:
        self.all_gather_bytes(b"")

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        # Imported on use: few programs of one process exchange bytes.
        from collectives.communicator.kinds.all_gather import AllGather

        everyone = AllGather(tuple(range(self.size)), dimension=0)
        rendezvous_table = self.world.rendezvous_table
        key = rendezvous_table.arrive(
            self.rank, "exchange", everyone, [np.frombuffer(data, np.uint8)]
        )
        self.wait_until(
            lambda: rendezvous_table.is_complete(key),
            "an exchange of bytes",
            everyone.group,
            lambda: rendezvous_table.missing(key),
        )
        return [member[0].tobytes() for member in rendezvous_table.collect(key)]

    def gather_bytes(self, data: bytes) -> list[bytes] | None:
        gathered = self.all_gather_bytes(data)
        return gathered if self.rank == 0 else None

    def broadcast_bytes(self, data: bytes) -> bytes:
        return self.all_gather_bytes(data)[0]
