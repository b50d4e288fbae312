"""Devices as MPI ranks: exchanges carried by nonblocking messages on one communicator per group.

Only mpi4py's upper-case methods are used: bytes and arrays cross ranks, never pickled objects. Messages carry a tag
that counts the group's collectives, so that several may be in flight and finish in any order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from mpi4py import MPI

from collectives.communicator.algorithms import Exchange, exchanges_of
from collectives.communicator.interface import describe_group
from collectives.communicator.kinds import Collective, Group
from collectives.communicator.mpi_status import StatusBoard
from collectives.communicator.reduction import Array
from spmd.errors import CollectiveTimeoutError, RunError

_TAGS = 1 << 14
"""Tags in use before they wrap; MPI promises 32767, and no group has so many collectives in flight."""

_MEETING_TAG = 1
"""On the world's communicator, where groups that are new come together."""

_SPINS_BEFORE_SLEEP = 50  # some 150 us; more takes the cores from the ranks that are waited for
_SLEEP_SECONDS = 50e-6


class MpiCommunicator:
    """This process's end of an MPI world (a Communicator). Created and closed by all ranks together."""

    def __init__(self, world: MPI.Intracomm | None = None, timeout_seconds: float = 300.0) -> None:
        self.timeout_seconds = timeout_seconds
        parent = MPI.COMM_WORLD if world is None else world
        if not poll_until(parent.Ibarrier().Test, timeout_seconds):
            raise CollectiveTimeoutError(
                f"[rank {parent.rank}/{parent.size}] not all ranks have started within {timeout_seconds:g} s"
            )
        self._world = parent.Dup()
        self._groups: dict[Group, _GroupLink] = {}
        self._board = StatusBoard(self._world)
        self._in_flight: list[MpiPending] = []

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def size(self) -> int:
        return self._world.size

    def start(
        self, collective: Collective, name: str, operands: Sequence[Array], results: Sequence[Array]
    ) -> MpiPending:
        if self.rank not in collective.group:
            raise RunError(
                f"{name}: rank {self.rank} is not in group {describe_group(collective.group)}"
            )
        for array in (*operands, *results):
            if not array.flags.c_contiguous:
                raise RunError(f"{name}: a buffer of shape {array.shape} is not contiguous")
        self.note(f"last started {name}")
        exchanges = exchanges_of(collective, self.rank, operands, results)
        pending = MpiPending(self, self._link(collective.group), name, exchanges)
        self._in_flight.append(pending)
        return pending

    def prepare(self, groups: Iterable[Group]) -> None:
        for group in groups:
            if self.rank in group:
                self._link(group)

    def note(self, text: str) -> None:
        self._board.note(text)

    def barrier(self) -> None:
        self._complete(self._world.Ibarrier(), "a barrier")

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        lengths = self._gather_lengths(data)
        joined = bytearray(int(lengths.sum()))
        request = self._world.Iallgatherv([data, MPI.BYTE], [joined, lengths, MPI.BYTE])
        self._complete(request, "an exchange of bytes")
        return _split_bytes(joined, lengths)

    def gather_bytes(self, data: bytes, root: int = 0) -> list[bytes] | None:
        lengths = self._gather_lengths(data)
        joined = bytearray(int(lengths.sum()) if self.rank == root else 0)
        receive = [joined, lengths, MPI.BYTE] if self.rank == root else None
        self._complete(self._world.Igatherv([data, MPI.BYTE], receive, root), "a gather of bytes")
        return _split_bytes(joined, lengths) if self.rank == root else None

    def broadcast_bytes(self, data: bytes | None, root: int = 0) -> bytes:
        length = int(self._gather_lengths(data or b"")[root])
        buffer = bytearray(data or b"") if self.rank == root else bytearray(length)
        self._complete(self._world.Ibcast([buffer, MPI.BYTE], root), "a broadcast of bytes")
        return bytes(buffer)

    def abort(self, exit_code: int) -> None:
        """End every process of the job now; the launcher exits with ``exit_code`` (non-zero)."""
        self._world.Abort(exit_code)

    def close(self) -> None:
        """Free what was made, in the order of making; every rank calls it, with nothing in flight."""
        self._board.close()
        for link in self._groups.values():
            link.comm.Free()
        self._groups.clear()
        self._world.Free()

    def progress(self) -> None:
        """Let every collective in flight advance; also what the scheduler's progress points call."""
        for pending in tuple(self._in_flight):
            pending.poll()

    def retire(self, pending: MpiPending) -> None:
        if pending in self._in_flight:
            self._in_flight.remove(pending)

    def _whereabouts(self, ranks: Sequence[int]) -> str:
        return "; ".join(f"rank {rank} {self._board.whereabouts(rank)}" for rank in ranks[:8])

    def _gather_lengths(self, data: bytes) -> Array:
        lengths = np.empty(self.size, np.int64)
        request = self._world.Iallgather(np.array([len(data)], np.int64), lengths)
        self._complete(request, "an exchange of sizes")
        return lengths

    def _complete(self, request: MPI.Request, what: str) -> None:
        """Wait for a request among all ranks. CollectiveTimeoutError says where the others were last seen."""
        if not poll_until(request.Test, self.timeout_seconds):
            others = [rank for rank in range(self.size) if rank != self.rank]
            raise CollectiveTimeoutError(
                f"[rank {self.rank}/{self.size}] {what} among all ranks did not finish within "
                f"{self.timeout_seconds:g} s ({self._whereabouts(others)})"
            )

    def _await_members(self, group: Group) -> None:
        """Return when every member has come to this call: creating a communicator would wait for it without end."""
        others = [rank for rank in group if rank != self.rank]
        token = np.zeros(1, np.uint8)
        arrivals = {
            rank: self._world.Irecv(np.empty(1, np.uint8), rank, _MEETING_TAG) for rank in others
        }
        calls = [self._world.Isend(token, rank, _MEETING_TAG) for rank in others]
        requests = [*arrivals.values(), *calls]
        if not poll_until(lambda: MPI.Request.Testall(requests), self.timeout_seconds):
            late = [rank for rank, arrival in arrivals.items() if not arrival.Test()]
            raise CollectiveTimeoutError(
                self.why_not("the first collective of a group", group, late)
            )

    def why_not(self, what: str, group: Group, late: Sequence[int]) -> str:
        """Who did not come to a meeting of ``group``, and where they were last seen."""
        missing = tuple(late) or tuple(rank for rank in group if rank != self.rank)
        return (
            f"[rank {self.rank}/{self.size}] {what}: group {describe_group(group)} did not meet within "
            f"{self.timeout_seconds:g} s: nothing came from {describe_group(missing)} ({self._whereabouts(missing)})"
        )

    def _link(self, group: Group) -> _GroupLink:
        link = self._groups.get(group)
        if link is None:
            self._await_members(group)
            # Collective over the group alone; ranks meet its members in program order.
            members = self._world.Get_group().Incl(group)
            link = _GroupLink(self._world.Create_group(members), group)
            members.Free()
            self._groups[group] = link
        return link


class _GroupLink:
    """A group's communicator, in which member i has rank i, and the count of collectives on it."""

    def __init__(self, comm: MPI.Intracomm, group: Group) -> None:
        self.comm = comm
        self.group = group
        self._count = 0

    def next_tag(self) -> int:
        self._count += 1
        return self._count % _TAGS


class MpiPending:
    """A collective in flight (a Pending): its exchange's outstanding requests, and the exchanges still to come.

    A multi-exchange collective keeps its tag: messages between two members of one collective arrive in order.
    """

    def __init__(
        self,
        communicator: MpiCommunicator,
        link: _GroupLink,
        name: str,
        exchanges: Iterator[Exchange],
    ) -> None:
        self._communicator = communicator
        self._link = link
        self._name = name
        self._tag = link.next_tag()
        self._exchanges = exchanges
        self._receives: dict[int, MPI.Request] = {}
        self._sends: list[MPI.Request] = []
        self._current: Exchange | None = None
        self._advance()

    def poll(self) -> bool:
        """Go on as far as messages have come; True when the results are complete."""
        while self._current is not None:
            requests = [*self._receives.values(), *self._sends]
            if not MPI.Request.Testall(requests):
                return False
            self._advance()
        return True

    def test(self) -> bool:
        self._communicator.progress()
        return self._finish_if_complete()

    def wait(self) -> None:
        if self._finish_if_complete():
            return
        self._communicator.note(f"waits in {self._name}")
        if not poll_until(self.test, self._communicator.timeout_seconds):
            raise CollectiveTimeoutError(
                self._communicator.why_not(self._name, self._link.group, self._late())
            )
        self._communicator.note(f"has passed {self._name}")

    def _finish_if_complete(self) -> bool:
        if not self.poll():
            return False
        self._communicator.retire(self)
        return True

    def _advance(self) -> None:
        """Post the next exchange, receives first."""
        exchange = next(self._exchanges, None)
        self._current = exchange
        if exchange is None:
            return
        comm, tag = self._link.comm, self._tag
        self._receives = {
            member: comm.Irecv([_bytes_of(array), MPI.BYTE], member, tag)
            for member, array in exchange.receives.items()
        }
        self._sends = [
            comm.Isend([_bytes_of(array), MPI.BYTE], member, tag)
            for member, array in exchange.sends.items()
        ]

    def _late(self) -> list[int]:
        return [
            self._link.group[member]
            for member, request in self._receives.items()
            if not request.Test()
        ]


def poll_until(done: Callable[[], bool], seconds: float) -> bool:
    """Ask ``done`` until it says True; False after ``seconds``.

    Yields the core at once and soon sleeps: ranks may outnumber cores, and the one that all wait for needs one.
    """
    deadline = time.monotonic() + seconds
    spins = 0
    while not done():
        spins += 1
        if spins < _SPINS_BEFORE_SLEEP:
            os.sched_yield()
            continue
        time.sleep(_SLEEP_SECONDS)
        if time.monotonic() > deadline:
            return False
    return True


def _bytes_of(array: Array) -> Array:
    """The array's memory as bytes: MPI need not know bf16."""
    return array.reshape(-1).view(np.uint8)


def _split_bytes(joined: bytearray, lengths: Array) -> list[bytes]:
    ends = np.cumsum(lengths)
    return [bytes(joined[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
