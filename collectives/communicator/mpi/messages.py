"""Collectives as nonblocking messages between MPI ranks, on one communicator per group.

Each collective has tags of its own, so that several may be in flight and finish in any order. MPI delivers the messages
of one tag between two ranks in order, which keeps apart the runs of a collective and the exchanges of a run. MPI may
start the requests of one exchange in any order, so several messages from one member to another in one exchange have
different tags. Native code runs most collectives (``native_collective``, with requests from this module);
``MessageCollective`` runs those whose decisions or reductions need Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mpi4py import MPI

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Exchange,
    LocalBarrier,
    Message,
    exchanges_of,
)
from collectives.communicator.group import Group
from collectives.communicator.mpi.requests import PersistentMessages, TaggedMessage, bytes_of
from collectives.communicator.wait_context import WaitingWorld
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass

_LEAST_TAGS = 32767
"""Least value of MPI_TAG_UB that the MPI standard guarantees."""


class GroupLink:
    """The MPI communicator of a group, in which member i has rank i, and the allocation of its message tags."""

    def __init__(self, comm: MPI.Intracomm, group: Group) -> None:
        self.comm = comm
        self.group = group
        self._taken = 0
        self._tags = int(comm.Get_attr(MPI.TAG_UB) or _LEAST_TAGS)

    def channel(self, messages: int) -> Channel:
        """Reserve tags for the next collective and return its channel. All members must call it in the same order.

        ``messages`` is the number of tags: the largest number of messages between two members in one exchange.
        """
        first = self._taken
        self._taken += messages
        return Channel(self, first)

    def tagged(self, messages: Sequence[Message], first: int) -> Iterator[TaggedMessage]:
        """Yield the messages with their tags, which count from ``first`` separately for each member."""
        before: Counter[int] = Counter()
        for member, array in messages:
            yield member, array, (first + before[member]) % self._tags
            before[member] += 1


@dataclass(frozen=True)
class Channel:
    """The channel of one collective. Its messages have tags from ``first`` on."""

    link: GroupLink
    first: int

    @property
    def group(self) -> Group:
        return self.link.group

    def prepare(self, exchange: Exchange) -> PersistentMessages:
        """Return persistent requests of ``exchange`` for native code."""
        receives, sends = (
            tuple(self.link.tagged(messages, self.first))
            for messages in (exchange.receives, exchange.sends)
        )
        return PersistentMessages(self.link.comm, self.group, receives, sends)

    def post(self, exchange: Exchange) -> PostedExchange:
        """Post the receives, then the sends, of ``exchange``."""
        comm = self.link.comm
        receives = [
            (self.group[member], comm.Irecv([bytes_of(array), MPI.BYTE], member, tag))
            for member, array, tag in self.link.tagged(exchange.receives, self.first)
        ]
        sends = [
            (self.group[member], comm.Isend([bytes_of(array), MPI.BYTE], member, tag))
            for member, array, tag in self.link.tagged(exchange.sends, self.first)
        ]
        return PostedExchange([*receives, *sends])


@dataclass(frozen=True)
class PostedExchange:
    """An exchange in progress. Each entry of ``requests`` is the rank at the other end and the request."""

    requests: Sequence[tuple[int, MPI.Request]]

    def poll(self) -> bool:
        """Return whether all requests are complete."""
        return bool(MPI.Request.Testall([one for _, one in self.requests]))

    def late(self) -> list[int]:
        """Return the ranks from which a message, or to which a message too long for an eager send, is incomplete."""
        return list(dict.fromkeys(rank for rank, one in self.requests if not one.Test()))


class MessageCollective:
    """A BoundCollective whose actions run in Python, by messages alone.

    During a run it holds the exchange in progress and an iterator over the remaining ones.
    """

    def __init__(
        self, world: WaitingWorld, channel: Channel, name: str, actions: Sequence[ArrayAction]
    ) -> None:
        self.name = name
        self._world = world
        self._channel = channel
        self._actions = actions
        self._running = False
        self._due: Iterator[Exchange | LocalBarrier] = iter(())
        self._current: PostedExchange | None = None

    def start(self) -> None:
        if self._running:
            raise RunError(f"{self.name} is started again before it was waited for")
        self._world.note(f"last started {self.name}")
        self._running = True
        self._world.in_flight.enter(self)
        self._due = exchanges_of(self._actions)
        self._advance()

    def poll(self) -> bool:
        """Advance the run as far as messages have arrived. Returns whether the results are complete."""
        while self._current is not None:
            if not self._current.poll():
                return False
            self._advance()
        return True

    def test(self) -> bool:
        self._world.in_flight.progress()
        return self._finish_if_complete()

    def wait(self) -> None:
        if self._finish_if_complete():
            return
        self._world.wait_until(self.test, self.name, self._channel.group, self._late)

    def complete(self) -> None:
        self.start()
        self.wait()

    def _finish_if_complete(self) -> bool:
        """Advance the run, and end it if it is complete. Returns whether it is."""
        if not self.poll():
            return False
        if self._running:
            self._running = False
            self._world.in_flight.retire(self)
        return True

    def _advance(self) -> None:
        """Perform the local actions up to the next exchange, and post that exchange if there is one."""
        due = next(self._due, None)
        assert not isinstance(due, LocalBarrier), "collectives in two levels are native"
        self._current = None if due is None else self._channel.post(due)

    def _late(self) -> list[int]:
        """Return the ranks that hold up the exchange in progress."""
        return [] if self._current is None else self._current.late()
