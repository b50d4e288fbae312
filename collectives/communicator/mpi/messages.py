"""Collectives as nonblocking messages between MPI ranks, on one communicator per group.

Each collective has tags of its own: several may be in flight and finish in any order, and its runs, like its exchanges,
arrive one after the other, as MPI delivers what two ranks send each other under one tag. The requests of one exchange
MPI may start in any order: what one member sends another at once has a tag for each message. Native code carries most
of them (``native_collective``, with requests from here), and ``MessageCollective`` what Python must decide or reduce.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np
from mpi4py import MPI

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Exchange,
    LocalBarrier,
    Message,
    exchanges_of,
)
from collectives.communicator.group import Array, Group
from collectives.communicator.mpi.requests import PersistentMessages, TaggedMessage, bytes_of
from collectives.communicator.node.node import Nodes
from collectives.communicator.wait_context import WaitingWorld
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass

_LEAST_TAGS = 32767
"""That MPI promises."""


@dataclass
class Traffic:
    """Counters of what this rank has sent to ranks of other nodes since the communicator was made."""

    nodes: Nodes
    rank: int
    #: Bytes, messages. Native code adds to them.
    sent: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    @property
    def bytes_between_nodes(self) -> int:
        return int(self.sent[0])

    def crossing(self, group: Group, sends: Sequence[Message]) -> tuple[int, int]:
        """Bytes and messages that these bring to other nodes."""
        number_of = self.nodes.number_of
        sizes = [
            array.nbytes
            for member, array in sends
            if number_of[group[member]] != number_of[self.rank]
        ]
        return sum(sizes), len(sizes)


class GroupLink:
    """A group's communicator, in which member i has rank i, and the tags that collectives on it have taken."""

    def __init__(self, comm: MPI.Intracomm, group: Group, traffic: Traffic) -> None:
        self.comm = comm
        self.group = group
        self.traffic = traffic
        self._taken = 0
        self._tags = int(comm.Get_attr(MPI.TAG_UB) or _LEAST_TAGS)

    def channel(self, messages: int) -> Channel:
        """For the next collective, the same on every member. messages: the most that one sends another at once."""
        first = self._taken
        self._taken += messages
        return Channel(self, first)

    def tagged(self, messages: Sequence[Message], first: int) -> Iterator[TaggedMessage]:
        """With the tags from ``first`` on, for each member anew."""
        before: Counter[int] = Counter()
        for member, array in messages:
            yield member, array, (first + before[member]) % self._tags
            before[member] += 1


@dataclass(frozen=True)
class Channel:
    """The messages of one collective. ``first``: its first tag."""

    link: GroupLink
    first: int

    @property
    def group(self) -> Group:
        return self.link.group

    def prepare(self, exchange: Exchange) -> PersistentMessages:
        """Requests for native code."""
        traffic = self.link.traffic
        crossing = traffic.crossing(self.group, exchange.sends)
        receives, sends = (
            tuple(self.link.tagged(messages, self.first))
            for messages in (exchange.receives, exchange.sends)
        )
        return PersistentMessages(
            self.link.comm, self.group, receives, sends, traffic.sent, crossing
        )

    def post(self, exchange: Exchange) -> PostedExchange:
        """Begin an exchange, receives first."""
        comm = self.link.comm
        receives = [
            (self.group[member], comm.Irecv([bytes_of(array), MPI.BYTE], member, tag))
            for member, array, tag in self.link.tagged(exchange.receives, self.first)
        ]
        sends = [
            (self.group[member], comm.Isend([bytes_of(array), MPI.BYTE], member, tag))
            for member, array, tag in self.link.tagged(exchange.sends, self.first)
        ]
        self.link.traffic.sent += self.link.traffic.crossing(self.group, exchange.sends)
        return PostedExchange([*receives, *sends])


@dataclass(frozen=True)
class PostedExchange:
    """Messages under way. ``requests``: with the rank at the other end."""

    requests: Sequence[tuple[int, MPI.Request]]

    def poll(self) -> bool:
        return bool(MPI.Request.Testall([one for _, one in self.requests]))

    def late(self) -> list[int]:
        """The ranks that have not sent yet, or have not received a message too long for an eager send."""
        return list(dict.fromkeys(rank for rank, one in self.requests if not one.Test()))


class MessageCollective:
    """A collective whose actions Python carries out, by messages alone (BoundCollective).

    In a run: the exchange it waits for, and those still to come.
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
        """Go on as far as messages have come; True when the results are complete."""
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
        if not self.poll():
            return False
        if self._running:
            self._running = False
            self._world.in_flight.retire(self)
        return True

    def _advance(self) -> None:
        """To the next exchange."""
        due = next(self._due, None)
        assert not isinstance(due, LocalBarrier), "collectives in two levels are native"
        self._current = None if due is None else self._channel.post(due)

    def _late(self) -> list[int]:
        return [] if self._current is None else self._current.late()
