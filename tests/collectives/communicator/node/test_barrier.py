"""Gates: nobody goes on before all have come, who sleeps is woken, and who is late is known."""

from __future__ import annotations

import random
import time

import pytest
from shared_memory_ranks import SharedMemoryRank, pass_gate, run_shared_memory_ranks

from collectives.communicator.node.barrier import GATE_BYTES, Gate
from spmd.errors import CollectiveTimeoutError

PASSAGES = 60


def gate_of(comm: SharedMemoryRank) -> Gate:
    window, _own = comm.memory.open(GATE_BYTES)
    gate = comm.memory.gate(window)
    assert gate is not None
    return gate


def dawdle(chance: random.Random) -> None:
    """Mostly no time at all, sometimes long enough for others to fall asleep."""
    if chance.random() < 0.2:
        time.sleep(chance.random() * 2e-3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_nobody_passes_before_all_have_come(size: int) -> None:
    come = [0] * size

    def program(comm: SharedMemoryRank) -> float:
        gate, chance = gate_of(comm), random.Random(comm.rank)
        begin = time.monotonic()
        for passage in range(1, PASSAGES):
            dawdle(chance)
            come[comm.rank] = passage
            pass_gate(gate)
            assert min(come) >= passage
        return time.monotonic() - begin

    # Naps take a tenth of a second: sleepers were woken.
    assert max(run_shared_memory_ranks(size, program)) < PASSAGES * 0.05


def test_who_is_late_is_known() -> None:
    def program(comm: SharedMemoryRank) -> list[int]:
        gate = gate_of(comm)
        pass_gate(gate)
        if comm.rank == 1:
            comm.barrier()
            return []
        with pytest.raises(CollectiveTimeoutError, match=r"from \[1\]"):
            pass_gate(gate, 0.3)
        late = gate.late()
        comm.barrier()
        return late

    assert run_shared_memory_ranks(3, program) == [[1], [], [1]]
