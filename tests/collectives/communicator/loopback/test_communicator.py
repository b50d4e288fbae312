"""Loopback devices: right results, and a prompt, readable error where a meeting cannot happen."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import numpy as np
import pytest
from bound_collectives import run_collective
from collective_scenarios import SCENARIOS
from loopback_ranks import run_ranks

import collectives.communicator.loopback.communicator as loopback_communicator
from collectives.communicator.actions.engine import CollectiveEngine
from collectives.communicator.actions.shared_actions import CollectiveProgram
from collectives.communicator.actions.shared_buffers import private_memory
from collectives.communicator.group import Array
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.loopback.communicator import LoopbackCommunicator
from runtime.cpu.collective.collective_engine import (
    NativeCollectiveEngine,
    NativeCollectiveProgram,
    native_collective_engine,
)
from spmd.device import ReductionKind
from spmd.errors import CollectiveTimeoutError, RunError

#: Meetings of Python, and native actions over the process's memory.
ENGINES = pytest.mark.parametrize(
    "engine", [None, native_collective_engine()], ids=["python", "native"]
)


@ENGINES
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, size: int, engine: CollectiveEngine | None) -> None:
    run_ranks(size, SCENARIOS[name], 60, engine)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_on_eight_devices(name: str) -> None:
    """The number of native actions depends on that of the devices.

    Meetings in Python are the same for any number.
    """
    run_ranks(8, SCENARIOS[name], 60, native_collective_engine())


class CollectingEngine(NativeCollectiveEngine):
    """The native engine, which notes the programs that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[CollectiveProgram] = []

    def load(self, programs: Sequence[CollectiveProgram]) -> list[NativeCollectiveProgram]:
        self.programs += programs
        return super().load(programs)


def test_a_small_all_gather_has_as_many_actions_on_eight_devices_as_on_two() -> None:
    def program(comm: LoopbackCommunicator) -> list[float]:
        whole = np.zeros(comm.size)
        gather = AllGather(tuple(range(comm.size)), 0)
        run_collective(comm, gather, "gather", [np.array([1.0 + comm.rank])], [whole])
        return whole.tolist()

    counts = []
    for size in (2, 8):
        engine = CollectingEngine()
        assert run_ranks(size, program, 60, engine) == [[1.0 + k for k in range(size)]] * size
        counts.append({len(one.actions) for one in engine.programs})
    assert counts[0] == counts[1]
    assert len(counts[0]) == 1


def test_a_finished_group_leaves_its_memory_to_its_members() -> None:
    def program(comm: LoopbackCommunicator) -> dict[object, object]:
        group = (0, 2) if comm.rank != 1 else (1,)
        first, second = (comm.allocate_shared(100, group) for _ in range(2))
        first[comm.rank] = 1
        comm.barrier()
        assert first[:4].tolist() == ([0, 1, 0, 0] if comm.rank == 1 else [1, 0, 1, 0])
        assert not second.any()
        return comm.world._shared

    assert run_ranks(3, program)[0] == {}


def test_shared_memory_is_allocated_by_one_member(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[int] = []

    def allocate(num_bytes: int) -> Array:
        allocated.append(num_bytes)
        return private_memory(num_bytes)

    monkeypatch.setattr(loopback_communicator, "private_memory", allocate)
    run_ranks(3, lambda comm: comm.allocate_shared(100, (0, 1, 2)))
    assert allocated == [100]


def test_different_sizes_of_one_memory_are_refused() -> None:
    with pytest.raises(RunError, match=r"group \{0,1\} shares memory: .* bytes on rank"):
        run_ranks(2, lambda comm: comm.allocate_shared(64 + comm.rank, (0, 1)))


def all_reduce(comm: LoopbackCommunicator, name: str, group: tuple[int, ...]) -> float:
    value = np.array([1.0])
    run_collective(comm, AllReduce(group, ReductionKind.SUM), name, [value], [value])
    return float(value[0])


def test_results_come_in_rank_order() -> None:
    assert run_ranks(4, lambda comm: comm.rank * 10) == [0, 10, 20, 30]


@ENGINES
def test_timeout_names_operation_group_and_missing_rank_with_its_whereabouts(
    engine: CollectiveEngine | None,
) -> None:
    def program(comm: LoopbackCommunicator) -> None:
        if comm.rank == 2:
            comm.note("computes dot.7")
            time.sleep(1.5)
        all_reduce(comm, "all-reduce.3", (0, 1, 2))

    with pytest.raises(CollectiveTimeoutError) as caught:
        run_ranks(3, program, 0.3, engine)
    message = str(caught.value)
    assert re.search(r"\[rank [01]/3\] all-reduce.3", message)
    assert "group {0,1,2}" in message
    assert "missing {2} (rank 2 computes dot.7)" in message


@ENGINES
def test_a_rank_that_ended_is_reported_at_once(engine: CollectiveEngine | None) -> None:
    def program(comm: LoopbackCommunicator) -> None:
        if comm.rank != 1:
            all_reduce(comm, "all-reduce.3", (0, 1))

    started = time.monotonic()
    with pytest.raises(CollectiveTimeoutError, match=r"missing \{1\} \(rank 1 ended its program\)"):
        run_ranks(2, program, 60, engine)
    assert time.monotonic() - started < 10


@ENGINES
def test_a_rank_that_raises_ends_the_others_with_its_own_error(
    engine: CollectiveEngine | None,
) -> None:
    def program(comm: LoopbackCommunicator) -> None:
        if comm.rank == 3:
            raise RunError("out of memory in fusion.9")
        all_reduce(comm, "all-reduce.3", (0, 1, 2, 3))

    started = time.monotonic()
    with pytest.raises(RunError, match=r"^out of memory in fusion\.9$"):
        run_ranks(4, program, 60, engine)
    assert time.monotonic() - started < 10


@ENGINES
def test_groups_that_wait_for_each_other_time_out_instead_of_hanging(
    engine: CollectiveEngine | None,
) -> None:
    """Rank 0 waits in a, rank 1 in b: neither can meet."""

    def program(comm: LoopbackCommunicator) -> None:
        all_reduce(comm, "a" if comm.rank == 0 else "b", (0, 1))

    with pytest.raises(CollectiveTimeoutError, match=r"rank [01] waits in [ab]"):
        run_ranks(2, program, 0.3, engine)


def test_a_rank_outside_the_group_is_refused() -> None:
    def program(comm: LoopbackCommunicator) -> None:
        all_reduce(comm, "all-reduce.3", (0,))

    with pytest.raises(RunError, match=r"all-reduce.3: rank 1 is not in group \{0\}"):
        run_ranks(2, program, timeout_seconds=5)


def test_a_finished_world_keeps_no_meetings() -> None:
    worlds = run_ranks(3, lambda comm: (all_reduce(comm, "x", (0, 1, 2)), comm.world)[1])
    assert len(worlds[0].rendezvous_table) == 0
