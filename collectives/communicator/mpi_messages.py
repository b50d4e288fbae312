"""Collectives as nonblocking messages between MPI ranks, on one communicator per group.

Messages carry a tag that counts the group's collectives, so that several may be in flight and finish in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

from collectives.communicator.algorithms import Exchange, exchanges_of, message_steps
from collectives.communicator.kinds import Collective, Group
from collectives.communicator.reduction import Array
from collectives.communicator.shared_buffers import Buffers
from collectives.communicator.waiting import WaitingWorld
from spmd.errors import RunError

_TAGS = 1 << 14
"""Tags in use before they wrap; MPI promises 32767, and no group has so many collectives in flight."""


class GroupLink:
    """A group's communicator, in which member i has rank i, and the count of collectives on it."""

    def __init__(self, comm: MPI.Intracomm, group: Group) -> None:
        self.comm = comm
        self.group = group
        self._count = 0

    def next_tag(self) -> int:
        self._count += 1
        return self._count % _TAGS


class MessageCollective:
    """A collective carried by messages (a BoundCollective).

    In a run: its exchange's outstanding requests, and the exchanges still to come. A multi-exchange collective keeps
    its tag: messages between two members of one collective arrive in order.
    """

    def __init__(
        self,
        world: WaitingWorld,
        link: GroupLink,
        collective: Collective,
        name: str,
        buffers: Buffers,
    ) -> None:
        self._world = world
        self._link = link
        self._name = name
        self._steps = message_steps(collective, world.rank, buffers.operands, buffers.results)
        self._running = False
        self._tag = 0
        self._exchanges: Iterator[Exchange] = iter(())
        self._receives: dict[int, MPI.Request] = {}
        self._sends: list[MPI.Request] = []
        self._current: Exchange | None = None

    def start(self) -> None:
        if self._running:
            raise RunError(f"{self._name} is started again before it was waited for")
        self._world.note(f"last started {self._name}")
        self._running = True
        self._world.enter(self)
        self._tag = self._link.next_tag()
        self._exchanges = exchanges_of(self._steps)
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
        self._world.progress()
        return self._finish_if_complete()

    def wait(self) -> None:
        if self._finish_if_complete():
            return
        self._world.wait_until(self.test, self._name, self._link.group, self._late)

    def _finish_if_complete(self) -> bool:
        if not self.poll():
            return False
        if self._running:
            self._running = False
            self._world.retire(self)
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


def _bytes_of(array: Array) -> Array:
    """The array's memory as bytes: MPI need not know bf16."""
    return array.reshape(-1).view(np.uint8)
