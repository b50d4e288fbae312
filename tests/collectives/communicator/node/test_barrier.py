"""Barriers: nobody goes on before all have come, who sleeps is woken, and who is late is known."""

from __future__ import annotations

import random
import time

import pytest
from shared_memory_ranks import SharedMemoryRank, pass_barrier, run_shared_memory_ranks

from collectives.communicator.node.barrier import BARRIER_BYTES, NodeBarrier
from spmd.errors import CollectiveTimeoutError

PASSAGES = 60


def barrier_of(comm: SharedMemoryRank) -> NodeBarrier:
    window, _own = comm.memory.open(BARRIER_BYTES)
    node_barrier = comm.memory.node_barrier(window)
    assert node_barrier is not None
    return node_barrier


def dawdle(chance: random.Random) -> None:
    """Mostly no time at all, sometimes long enough for others to fall asleep."""
    if chance.random() < 0.2:
        time.sleep(chance.random() * 2e-3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_nobody_passes_before_all_have_come(size: int) -> None:
    come = [0] * size

    def program(comm: SharedMemoryRank) -> float:
        node_barrier, chance = barrier_of(comm), random.Random(comm.rank)
        begin = time.monotonic()
        for passage in range(1, PASSAGES):
            dawdle(chance)
            come[comm.rank] = passage
            pass_barrier(node_barrier)
            assert min(come) >= passage
        return time.monotonic() - begin

    # Naps take a tenth of a second: sleepers were woken.
    assert max(run_shared_memory_ranks(size, program)) < PASSAGES * 0.05


def test_who_is_late_is_known() -> None:
    def program(comm: SharedMemoryRank) -> list[int]:
        node_barrier = barrier_of(comm)
        pass_barrier(node_barrier)
        if comm.rank == 1:
            comm.barrier()
            return []
        with pytest.raises(CollectiveTimeoutError, match=r"from \[1\]"):
            pass_barrier(node_barrier, 0.3)
        late = node_barrier.late()
        comm.barrier()
        return late

    assert run_shared_memory_ranks(3, program) == [[1], [], [1]]
