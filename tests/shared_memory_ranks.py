"""Ranks as threads of this process that share memory as ranks of one node do: windows, native steps and all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from loopback_ranks import run_ranks

from collectives.communicator.actions.array_actions import Copy, exchanges_of
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.group import Group
from collectives.communicator.interface import BoundCollective
from collectives.communicator.kinds.op import Collective
from collectives.communicator.loopback.communicator import LoopbackCommunicator
from collectives.communicator.node.barrier import NodeBarrier
from collectives.communicator.node.node import default_node_id, find_nodes
from collectives.communicator.node.node_memory import NodeMemory
from collectives.communicator.node.shared_window import SharedMemoryProvider, default_providers
from collectives.communicator.wait_context import InFlightSet, poll_until
from runtime.cpu.collective.collective_engine import native_collective_engine
from spmd.errors import CollectiveTimeoutError

Result = TypeVar("Result")


class SharedMemoryRank:
    """A Communicator: set-up is exchanged by loopback, which also carries what the memory does not serve."""

    def __init__(
        self,
        loopback: LoopbackCommunicator,
        *,
        node_id: str | None = None,
        providers: Sequence[SharedMemoryProvider] | None = None,
        slot_bytes: int | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.loopback = loopback
        self.rank, self.size, self.cores = loopback.rank, loopback.size, 1
        self.timeout_seconds = loopback.world.timeout_seconds
        self.barrier = loopback.barrier
        self.all_gather_bytes = loopback.all_gather_bytes
        self.gather_bytes = loopback.gather_bytes
        self.broadcast_bytes = loopback.broadcast_bytes
        self.note = loopback.note
        self.position = loopback.position
        self.register_program = loopback.register_program
        self.by_messages: list[str] = []
        self.in_flight = InFlightSet()
        nodes = find_nodes(self.all_gather_bytes, self.rank, node_id or default_node_id())
        self.memory = NodeMemory(
            self,
            self.all_gather_bytes,
            replace(nodes.own, cores=1),  # tests run beside each other: no long spins
            native_collective_engine(),
            providers or default_providers(),
            notify,
            slot_bytes,
        )
        self.allocate = self.memory.allocate
        self.allocate_shared = self.memory.allocate_shared
        self.connect = self.memory.connect
        self.spins = self.memory.spins

    def keep_to_own_cores(self) -> None:
        """Threads of one process."""

    def bind(
        self,
        collective: Collective,
        name: str,
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
    ) -> BoundCollective:
        def by_messages(between: Buffers, last: Sequence[Copy]) -> BoundCollective:
            self.by_messages.append(name)
            return _Followed(
                self.loopback.bind(collective, name, between.operands, between.results), last
            )

        buffers = Buffers(tuple(operands), tuple(results))
        return self.memory.bind(collective, name, buffers, by_messages)

    def prepared_note(self, text: str) -> Callable[[], None]:
        return lambda: self.note(text)

    def wait_until(
        self, done: Callable[[], bool], what: str, group: Group, late: Callable[[], Sequence[int]]
    ) -> None:
        if not poll_until(done, self.timeout_seconds):
            raise CollectiveTimeoutError(
                f"{what}: group {group}: nothing received from {list(late())}"
            )


@dataclass
class _Followed:
    """A collective and what is done at the end of each of its runs."""

    inner: BoundCollective
    last: Sequence[Copy]
    is_under_way: bool = False

    def start(self) -> None:
        self.inner.start()
        self.is_under_way = True

    def test(self) -> bool:
        return self.inner.test() and self._finish()

    def wait(self) -> None:
        self.inner.wait()
        self._finish()

    def complete(self) -> None:
        self.start()
        self.wait()

    def _finish(self) -> bool:
        for _ in exchanges_of(self.last if self.is_under_way else ()):
            raise AssertionError("copies exchange nothing")
        self.is_under_way = False
        return True


def pass_barrier(node_barrier: NodeBarrier, timeout_seconds: float = 60.0) -> None:
    """CollectiveTimeoutError says who is late."""
    deadline = time.monotonic() + timeout_seconds
    is_over = node_barrier.enter()
    while not is_over:
        if time.monotonic() > deadline:
            raise CollectiveTimeoutError(
                f"nothing came to the node_barrier from {node_barrier.late()}"
            )
        is_over = node_barrier.wait()


def run_shared_memory_ranks(
    size: int,
    program: Callable[[SharedMemoryRank], Result],
    timeout_seconds: float = 60.0,
    **options: object,
) -> list[Result]:
    return run_ranks(
        size,
        lambda loopback: program(SharedMemoryRank(loopback, **options)),  # type: ignore[arg-type]
        timeout_seconds,
    )
