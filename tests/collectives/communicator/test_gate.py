"""Gates: nobody goes on before all have come, who sleeps is woken, and who is late is known."""

from __future__ import annotations

import random
import time

import pytest
from shared_memory_ranks import SharedMemoryRank, pass_gate, run_shared_memory_ranks

from collectives.communicator.gate import GATE_BYTES, Gate
from spmd.errors import CollectiveTimeoutError

PASSAGES = 60


def gate_of(comm: SharedMemoryRank, keeper: int | None = None) -> Gate:
    window, _own = comm.memory.open(GATE_BYTES)
    gate = comm.memory.gate(window, keeper=keeper)
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


@pytest.mark.parametrize("keeper", [0, 2])
def test_a_keeper_is_called_when_all_have_come_and_lets_them_pass(keeper: int) -> None:
    come, done = [0] * 3, [0]

    def program(comm: SharedMemoryRank) -> float:
        gate, chance = gate_of(comm, keeper), random.Random(comm.rank)
        begin = time.monotonic()
        for passage in range(1, PASSAGES):
            dawdle(chance)
            come[comm.rank] = passage
            pass_gate(gate)
            if comm.rank == keeper:
                assert min(come) == passage  # nobody is ahead while the keeper works
                dawdle(chance)
                assert min(come) == max(come) == passage
                done[0] = passage
                gate.open()
            assert done[0] >= passage
        return time.monotonic() - begin

    assert max(run_shared_memory_ranks(3, program)) < PASSAGES * 0.05


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


def test_a_keeper_that_works_is_late_itself() -> None:
    def program(comm: SharedMemoryRank) -> list[int]:
        gate = gate_of(comm, keeper=0)
        is_over = gate.enter()
        while comm.rank == 0 and not is_over:
            is_over = gate.wait()
        late = gate.late()
        comm.barrier()
        if comm.rank == 0:
            gate.open()
        return late

    found = run_shared_memory_ranks(2, program)
    assert found[1] == [0]
