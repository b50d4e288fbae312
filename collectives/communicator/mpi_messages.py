"""Collectives as nonblocking messages between MPI ranks, on one communicator per group.

Messages carry a tag that counts the group's collectives, so that several may be in flight and finish in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from mpi4py import MPI

from collectives.communicator.algorithms import Exchange, Meeting, Step, exchanges_of
from collectives.communicator.hierarchical_setup import NodeMeeting
from collectives.communicator.kinds import Group
from collectives.communicator.node import Nodes
from collectives.communicator.reduction import Array
from collectives.communicator.waiting import WaitingWorld
from spmd.errors import RunError

_TAGS = 1 << 14
"""Tags in use before they wrap; MPI promises 32767, and no group has so many collectives in flight."""


@dataclass
class Traffic:
    """What this rank has sent to ranks of other nodes, since the communicator was made."""

    nodes: Nodes
    rank: int
    bytes_between_nodes: int = 0
    messages_between_nodes: int = 0

    def count(self, target: int, num_bytes: int) -> None:
        if self.nodes.number_of[target] != self.nodes.number_of[self.rank]:
            self.bytes_between_nodes += num_bytes
            self.messages_between_nodes += 1


class GroupLink:
    """A group's communicator, in which member i has rank i, and the count of collectives on it."""

    def __init__(self, comm: MPI.Intracomm, group: Group, traffic: Traffic) -> None:
        self.comm = comm
        self.group = group
        self._traffic = traffic
        self._count = 0

    def next_tag(self) -> int:
        self._count += 1
        return self._count % _TAGS

    def post(self, exchange: Exchange, tag: int) -> PostedExchange:
        """Begin an exchange, receives first."""
        receives = {
            member: self.comm.Irecv([_bytes_of(array), MPI.BYTE], member, tag)
            for member, array in exchange.receives.items()
        }
        sends = []
        for member, array in exchange.sends.items():
            sends.append(self.comm.Isend([_bytes_of(array), MPI.BYTE], member, tag))
            self._traffic.count(self.group[member], array.nbytes)
        return PostedExchange(self.group, receives, sends)


class Pending(Protocol):
    """What a collective waits for before its next step."""

    def poll(self) -> bool:
        """True when it is over."""
        ...

    def late(self) -> list[int]:
        """Ranks that have not come."""
        ...


@dataclass(frozen=True)
class PostedExchange:
    """Messages under way (Pending). ``receives``: by member of the group."""

    group: Group
    receives: dict[int, MPI.Request]
    sends: list[MPI.Request]

    def poll(self) -> bool:
        return bool(MPI.Request.Testall([*self.receives.values(), *self.sends]))

    def late(self) -> list[int]:
        return [self.group[member] for member, one in self.receives.items() if not one.Test()]


class MessageCollective:
    """A collective carried by messages, and by meetings of a node's members where it has two levels (BoundCollective).

    In a run: what it waits for, and the steps still to come. A multi-exchange collective keeps its tag: messages
    between two members of one collective arrive in order.
    """

    def __init__(self, world: WaitingWorld, link: GroupLink, name: str) -> None:
        self.name = name
        self._world = world
        self._link = link
        self._steps: Sequence[Step] | None = None
        self._meetings: Sequence[NodeMeeting] = ()
        self._running = False
        self._tag = 0
        self._due: Iterator[Exchange | Meeting] = iter(())
        self._current: Pending | None = None

    def load(self, steps: Sequence[Step], meetings: Sequence[NodeMeeting] = ()) -> None:
        """Its steps, and meeting k of a run as ``meetings[k - 1]``."""
        self._steps = steps
        self._meetings = meetings

    def start(self) -> None:
        if self._running:
            raise RunError(f"{self.name} is started again before it was waited for")
        if self._steps is None:
            raise RunError(f"{self.name} is used before it was connected")
        self._world.note(f"last started {self.name}")
        self._running = True
        self._world.in_flight.enter(self)
        self._tag = self._link.next_tag()
        self._due = exchanges_of(self._steps)
        self._advance()

    def poll(self) -> bool:
        """Go on as far as messages and mates have come; True when the results are complete."""
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
        self._world.wait_until(self.test, self.name, self._link.group, self._late)

    def _finish_if_complete(self) -> bool:
        if not self.poll():
            return False
        if self._running:
            self._running = False
            self._world.in_flight.retire(self)
        return True

    def _advance(self) -> None:
        """To the next exchange or meeting."""
        due = next(self._due, None)
        if isinstance(due, Meeting):
            meeting = self._meetings[due.number - 1]
            meeting.start()
            self._current = meeting
        else:
            self._current = None if due is None else self._link.post(due, self._tag)

    def _late(self) -> list[int]:
        return [] if self._current is None else self._current.late()


def _bytes_of(array: Array) -> Array:
    """The array's memory as bytes: MPI need not know bf16."""
    return array.reshape(-1).view(np.uint8)
