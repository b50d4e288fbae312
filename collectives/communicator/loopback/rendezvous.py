"""Collectives among the devices of one process as rendezvous, in Python.

``start`` leaves a copy of the member's operands in the rendezvous, the last member to arrive combines the operands of
all, and ``wait`` writes the member's results. XLA's Rendezvous serves the same purpose among its CPU devices.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from collectives.communicator.group import Array, Group
from collectives.communicator.kinds.op import Collective, Members
from collectives.communicator.wait_context import WaitingWorld
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass

RendezvousKey = tuple[str, Group, int]
"""Instruction name, group, and number of earlier rendezvous of both."""


@dataclass
class _Rendezvous:
    """One rendezvous: the operands of the ranks that have arrived.

    ``combined`` is None until all members have arrived. ``taken`` is the number of members that have taken the result.
    """

    group: Group
    arrived: dict[int, list[Array]] = field(default_factory=dict)
    combined: Members | None = None
    taken: int = 0


class RendezvousTable:
    """The rendezvous of a world. It is thread-safe; a lock protects the table, but not the combining of operands.

    A rendezvous exists from its first arrival until its last member has taken the results or the world has failed. The
    members of a group must start the group's collectives in the same order.
    """

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._open: dict[RendezvousKey, _Rendezvous] = {}
        self._visits: list[Counter[tuple[str, Group]]] = [Counter() for _ in range(size)]

    def __len__(self) -> int:
        """Return the number of rendezvous that exist."""
        return len(self._open)

    def arrive(
        self, rank: int, name: str, collective: Collective, operands: Sequence[Array]
    ) -> RendezvousKey:
        """Leave copies of the operands of ``rank``. The last member combines them. Returns the rendezvous' key."""
        group = collective.group
        copies = [operand.copy() for operand in operands]
        with self._lock:
            key = (name, group, self._visits[rank][name, group])
            self._visits[rank][name, group] += 1
            rendezvous = self._open.setdefault(key, _Rendezvous(group))
            rendezvous.arrived[rank] = copies
            complete = len(rendezvous.arrived) == len(group)
        if complete:
            rendezvous.combined = collective.combine(
                [rendezvous.arrived[member] for member in group]
            )
        return key

    def is_complete(self, key: RendezvousKey) -> bool:
        """Return whether all members have arrived and their operands are combined."""
        with self._lock:
            return self._open[key].combined is not None

    def missing(self, key: RendezvousKey) -> list[int]:
        """Return the ranks that have not arrived."""
        with self._lock:
            rendezvous = self._open[key]
            return [rank for rank in rendezvous.group if rank not in rendezvous.arrived]

    def collect(self, key: RendezvousKey) -> Members:
        """Return the combined operands of a complete rendezvous.

        Each member must call it once; the last call removes the rendezvous.
        """
        with self._lock:
            rendezvous = self._open[key]
            rendezvous.taken += 1
            if rendezvous.taken == len(rendezvous.group):
                del self._open[key]
        assert rendezvous.combined is not None
        return rendezvous.combined


class RendezvousCollective:
    """A BoundCollective that has a rendezvous in each run."""

    def __init__(
        self,
        world: WaitingWorld,
        rendezvous_table: RendezvousTable,
        collective: Collective,
        name: str,
        operands: Sequence[Array],
        results: Sequence[Array],
    ) -> None:
        self._world = world
        self._rendezvous_table = rendezvous_table
        self._collective = collective
        self._index = collective.group.index(world.rank)
        self.name = name
        self._operands = operands
        self._results = results
        #: Key of the rendezvous of the present run; None between runs.
        self._key: RendezvousKey | None = None

    @property
    def group(self) -> Group:
        return self._collective.group

    @property
    def run(self) -> object:
        """Return a value that differs from run to run; None between runs."""
        return self._key

    def missing(self) -> list[int]:
        """Return the ranks that have not yet started the present run; an empty list between runs."""
        return [] if self._key is None else self._rendezvous_table.missing(self._key)

    def start(self) -> None:
        if self._key is not None:
            raise RunError(f"{self.name} is started again before it was waited for")
        self._key = self._rendezvous_table.arrive(
            self._world.rank, self.name, self._collective, self._operands
        )
        self._world.note(f"last started {self.name}")

    def test(self) -> bool:
        self._world.in_flight.progress()
        if self._key is not None and self._rendezvous_table.is_complete(self._key):
            self._deliver(self._key)
        return self._key is None

    def wait(self) -> None:
        if self._key is not None:
            key, rendezvous_table = self._key, self._rendezvous_table
            self._world.wait_until(
                lambda: rendezvous_table.is_complete(key), self.name, self.group, self.missing
            )
            self._deliver(key)

    def complete(self) -> None:
        self.start()
        self.wait()

    def _deliver(self, key: RendezvousKey) -> None:
        self._collective.deliver(self._rendezvous_table.collect(key), self._index, self._results)
        self._key = None
