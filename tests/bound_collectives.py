"""Ways to run collectives in tests: bound and run once, and on memory that the communicator allocated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collectives.communicator.group import Group
from collectives.communicator.interface import BoundCollective, Communicator
from collectives.communicator.kinds.op import Collective


def run_collective(
    comm: Communicator,
    collective: Collective,
    name: str,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
) -> None:
    bound = comm.bind(collective, name, operands, results)
    comm.connect()
    bound.complete()


class InAllocatedMemory:
    """A communicator whose collectives work on copies of their arrays in memory from ``allocate``.

    Arrays that are one array stay one, and memory that was allocated through it is used as it is. What is bound after a
    ``connect`` uses the memory of what was bound before it.
    """

    def __init__(self, comm: Communicator, num_bytes: int = 4 << 20) -> None:
        self._comm = comm
        self._memory = comm.allocate(num_bytes)
        self._end = 0
        self._given: list[np.ndarray] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._comm, name)

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
    ) -> BoundCollective:
        places: dict[int, np.ndarray] = {}
        for array in (*operands, *results):
            is_given = any(np.shares_memory(array, memory) for memory in self._given)
            places.setdefault(id(array), array if is_given else self._place(array))
        inner = self._comm.bind(
            collective,
            name,
            [places[id(array)] for array in operands],
            [places[id(array)] for array in results],
        )
        copies_in = [(places[id(array)], array) for array in operands]
        copies_out = [(array, places[id(array)]) for array in results]
        return _CopyingCollective(inner, copies_in, copies_out)

    def allocate(self, num_bytes: int) -> np.ndarray:
        self._given.append(self._comm.allocate(num_bytes))
        return self._given[-1]

    def allocate_shared(self, num_bytes: int, group: Group) -> np.ndarray:
        self._given.append(self._comm.allocate_shared(num_bytes, group))
        return self._given[-1]

    def connect(self) -> None:
        self._comm.connect()
        self._end = 0

    def _place(self, array: np.ndarray) -> np.ndarray:
        start = self._end
        self._end = -(-(start + array.nbytes) // 64) * 64
        assert self._end <= self._memory.nbytes
        memory = self._memory[start : start + array.nbytes]
        return memory.view(array.dtype).reshape(array.shape)


class InMemoryOfTheGroup(InAllocatedMemory):
    """Results that are the same for all members lie in memory that these have together."""

    def allocate(self, num_bytes: int) -> np.ndarray:
        """Copied from and to, as any other: an operand that lies in its result would not do so any more."""
        return self._comm.allocate(num_bytes)

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
    ) -> BoundCollective:
        if not collective.same_results:
            return super().bind(collective, name, operands, results)
        starts = [0, *itertools.accumulate(-(-result.nbytes // 64) * 64 for result in results)]
        memory = self.allocate_shared(starts[-1], collective.group)
        together = [
            memory[start : start + result.nbytes].view(result.dtype).reshape(result.shape)
            for start, result in zip(starts, results, strict=False)
        ]
        inner = super().bind(collective, name, operands, together)
        return _CopyingCollective(inner, [], list(zip(results, together, strict=True)))


@dataclass
class _CopyingCollective:
    inner: BoundCollective
    copies_in: list[tuple[np.ndarray, np.ndarray]]
    copies_out: list[tuple[np.ndarray, np.ndarray]]
    running: bool = field(default=False)

    def start(self) -> None:
        if not self.running:
            for target, source in self.copies_in:
                np.copyto(target, source)
        self.running = True
        self.inner.start()

    def test(self) -> bool:
        if not self.inner.test():
            return False
        self._finish()
        return True

    def wait(self) -> None:
        self.inner.wait()
        self._finish()

    def complete(self) -> None:
        self.start()
        self.wait()

    def _finish(self) -> None:
        if self.running:
            for target, source in self.copies_out:
                np.copyto(target, source)
        self.running = False
