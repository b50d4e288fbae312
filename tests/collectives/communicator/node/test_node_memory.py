"""Collectives over the memory of a node: the scenarios of every communicator, on threads that map the same memory."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from bound_collectives import InAllocatedMemory, InMemoryOfTheGroup, run_collective
from collective_scenarios import SCENARIOS
from loopback_ranks import run_ranks
from own_part_modules import check_run, modules
from shared_memory_ranks import SharedMemoryRank, run_shared_memory_ranks

from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.ragged_all_to_all import RaggedAllToAll
from collectives.communicator.loopback.communicator import LoopbackCommunicator
from collectives.communicator.node.shared_window import Directory
from spmd.device import ReductionKind
from spmd.errors import CollectiveTimeoutError, RunError
from tests.collectives.schedule.random_runs import on_ranks, on_threads


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_where_small_operands_go_through_slots(name: str, size: int) -> None:
    run_shared_memory_ranks(size, lambda comm: SCENARIOS[name](InAllocatedMemory(comm)))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_in_place(name: str, size: int) -> None:
    run_shared_memory_ranks(
        size, lambda comm: SCENARIOS[name](InAllocatedMemory(comm)), slot_bytes=0
    )


@pytest.mark.parametrize("slot_bytes", [0, 4096])
@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "all_reduce_of_every_type"])
def test_scenario_with_results_in_memory_of_the_group(name: str, slot_bytes: int) -> None:
    run_shared_memory_ranks(
        3, lambda comm: SCENARIOS[name](InMemoryOfTheGroup(comm)), slot_bytes=slot_bytes
    )


def halves(comm: SharedMemoryRank) -> tuple[int, ...]:
    return (0, 1) if comm.rank < 2 else (2, 3)


def test_groups_within_a_node_share_memory_and_others_do_not() -> None:
    def program(loopback: LoopbackCommunicator) -> list[str]:
        comm = SharedMemoryRank(loopback, node_id=f"node {loopback.rank // 2}")
        assert comm.memory.node.ranks == halves(comm)
        value = np.full(4, comm.rank, np.int32)
        total, part = np.empty_like(value), np.empty_like(value)
        run_collective(comm, AllReduce((0, 1, 2, 3), ReductionKind.SUM), "all", [value], [total])
        run_collective(comm, AllReduce(halves(comm), ReductionKind.SUM), "half", [value], [part])
        assert total.tolist() == [6] * 4
        assert part.tolist() == [sum(halves(comm))] * 4
        return comm.by_messages

    assert run_ranks(4, program) == [["all"]] * 4


def test_what_is_large_and_lies_elsewhere_goes_by_messages() -> None:
    def program(comm: SharedMemoryRank) -> list[str]:
        memory = comm.allocate(1 << 16).view(np.float32)
        elsewhere = np.zeros(1 << 14, np.float32)
        add = AllReduce((0, 1), ReductionKind.SUM)
        run_collective(comm, add, "inside", [memory[:8192]], [memory[8192:]])
        run_collective(comm, add, "result outside", [memory[:8192]], [elsewhere[:8192]])
        run_collective(comm, add, "small", [elsewhere[:8]], [elsewhere[8:16]])
        product = AllReduce((0, 1), ReductionKind.PRODUCT)
        complex_values = np.ones(3, np.complex64)
        run_collective(comm, product, "complex product", [complex_values], [complex_values])
        return comm.by_messages

    assert run_shared_memory_ranks(2, program) == [["result outside", "complex product"]] * 2


def test_results_in_memory_of_the_group_may_come_by_messages() -> None:
    """Two ranks reach it together; what is carried otherwise is right for both, run after run."""

    def program(comm: SharedMemoryRank) -> list[str]:
        pair = (0, 1)
        memory = comm.allocate_shared(1 << 16, pair)
        product = memory[:800].view(np.complex64)
        gathered = memory[1024:][: 16 * 1024].view(np.float32)
        factor = np.zeros(100, np.complex64)
        elsewhere = np.zeros(2048, np.float32)
        bound = [
            comm.bind(AllReduce(pair, ReductionKind.PRODUCT), "product", [factor], [product]),
            comm.bind(AllGather(pair, 0), "gather", [elsewhere], [gathered]),
        ]
        comm.connect()
        for run in range(1, 4):
            factor[:], elsewhere[:] = run + comm.rank, run * (comm.rank + 1)
            for one in bound:
                one.start()
            for one in bound:
                one.wait()
                assert one.test()
            assert product.tolist() == [run * (run + 1)] * 100
            assert gathered.tolist() == [run] * 2048 + [2 * run] * 2048
        return comm.by_messages

    assert run_shared_memory_ranks(2, program) == [["product", "gather"]] * 2


def test_a_group_of_several_nodes_may_have_its_results_once_on_each() -> None:
    def program(loopback: LoopbackCommunicator) -> list[str]:
        comm = SharedMemoryRank(loopback, node_id=f"node {loopback.rank // 2}")
        everyone = (0, 1, 2, 3)
        memory = comm.allocate_shared(4096, halves(comm)).view(np.int64)
        mine = np.zeros(128, np.int64)
        bound = [
            (comm.bind(AllGather(everyone, 0), "gather", [mine], [memory]), (1, 2, 3, 4)),
            (
                comm.bind(AllReduce(everyone, ReductionKind.SUM), "sum", [mine], [memory[:128]]),
                (10,),
            ),
        ]
        comm.connect()
        for run in range(1, 5):
            mine[:] = run * (comm.rank + 1)
            for one, factors in bound:
                one.start()
                one.wait()
                for block, factor in zip(np.split(memory, 4), factors, strict=False):
                    assert block.tolist() == [run * factor] * 128
        return comm.by_messages

    assert run_ranks(4, program) == [["gather", "sum"]] * 4


def test_ranks_of_different_nodes_have_memory_of_their_own() -> None:
    def program(loopback: LoopbackCommunicator) -> list[str]:
        comm = SharedMemoryRank(loopback, node_id=f"node {loopback.rank // 2}")
        crossing = (comm.rank % 2, comm.rank % 2 + 2)
        apart = comm.allocate_shared(400, crossing).view(np.int32)
        together = comm.allocate_shared(400, halves(comm)).view(np.int32)
        mine = np.full(100, comm.rank, np.int32)
        run_collective(comm, AllReduce(crossing, ReductionKind.SUM), "across", [mine], [apart])
        run_collective(comm, AllReduce(halves(comm), ReductionKind.SUM), "in", [mine], [together])
        run_collective(comm, AllReduce((0, 1, 2, 3), ReductionKind.MAX), "all", [mine], [apart])
        assert apart.tolist() == [3] * 100
        assert together.tolist() == [sum(halves(comm))] * 100
        apart[:] = comm.rank
        comm.barrier()
        assert apart.tolist() == [comm.rank] * 100
        return comm.by_messages

    assert run_ranks(4, program) == [["across", "all"]] * 4


@pytest.mark.parametrize("elements", [2, 8192])
def test_results_that_differ_are_refused_in_memory_of_the_group(elements: int) -> None:
    def program(comm: SharedMemoryRank) -> None:
        everyone = (0, 1, 2)
        pair = (0, 1) if comm.rank < 2 else (2,)
        own = comm.allocate(1 << 16).view(np.float32)[:elements]
        memory = comm.allocate_shared(1 << 16, everyone).view(np.float32)[:elements]
        memory_of_pair = comm.allocate_shared(1 << 16, pair).view(np.float32)[:elements]
        with pytest.raises(RunError, match="a2a: its results differ between ranks"):
            comm.bind(AllToAll(everyone, 0), "a2a", [own], [memory])
        with pytest.raises(
            RunError, match=r"ranks \{0,1,2\} share, but its group .* does not contain all"
        ):
            comm.bind(AllReduce(pair, ReductionKind.SUM), "some", [own], [memory])
        add = AllReduce(everyone, ReductionKind.SUM)
        own[:] = 1
        run_collective(comm, add, "more than hold it", [own], [memory_of_pair])
        assert memory_of_pair.tolist() == [3] * elements

    run_shared_memory_ranks(3, program)


def test_a_broadcast_by_messages_is_refused_in_memory_of_the_group() -> None:
    def program(comm: SharedMemoryRank) -> None:
        memory = comm.allocate_shared(1 << 16, (0, 1)).view(np.float32)
        elsewhere = np.zeros(memory.shape, np.float32)
        with pytest.raises(RunError, match="cb: a collective that uses MPI messages cannot write"):
            comm.bind(CollectiveBroadcast((0, 1)), "cb", [elsewhere], [memory])

    run_shared_memory_ranks(2, program)


@pytest.mark.usefixtures("own_objects_alone_are_collected")
def test_memory_of_a_dropped_array_is_not_taken_for_a_window() -> None:
    def program(comm: SharedMemoryRank) -> list[str]:
        comm.allocate(1 << 20)
        gc.collect()
        values = np.zeros(1 << 18, np.float32)  # may well lie where the window lay
        run_collective(comm, AllReduce((0, 1), ReductionKind.SUM), "after", [values], [values])
        return comm.by_messages

    assert run_shared_memory_ranks(2, program) == [["after"]] * 2


def test_buffers_may_lie_at_other_offsets_on_each_rank() -> None:
    def program(comm: SharedMemoryRank) -> list[str]:
        memory = comm.allocate(1 << 18).view(np.float32)
        start = 64 * comm.rank
        operand, result = memory[start:][:8192], memory[32768 - start :][:8192]
        operand[:] = np.arange(8192) + comm.rank
        for collective, want in [
            (AllReduce((0, 1), ReductionKind.SUM), 2 * np.arange(8192) + 1),
            (CollectivePermute((0, 1), ((0, 1), (1, 0))), np.arange(8192) + 1 - comm.rank),
        ]:
            run_collective(comm, collective, "collective", [operand], [result])
            np.testing.assert_array_equal(result, want)
        return comm.by_messages

    assert run_shared_memory_ranks(2, program) == [[], []]


@pytest.mark.parametrize("size", [2, 4])
def test_collectives_on_own_parts_of_an_output(size: int) -> None:
    def program(comm: SharedMemoryRank) -> int:
        run = on_ranks(comm)
        return min(check_run(module, run) for module in modules(size))

    assert min(run_shared_memory_ranks(size, program)) >= 6
    for module in modules(size):
        check_run(module, on_threads)


def test_ranks_whose_buffers_overlap_otherwise_are_refused_on_every_rank() -> None:
    def program(comm: SharedMemoryRank) -> str:
        memory = comm.allocate(1 << 17)
        operand, result = memory[: 1 << 16], memory[1 << 16 :]
        array = operand if comm.rank == 1 else result
        comm.bind(AllReduce((0, 1), ReductionKind.SUM), "all-reduce.7", [operand], [array])
        with pytest.raises(RunError) as caught:
            comm.connect()
        return str(caught.value)

    messages = run_shared_memory_ranks(
        3, lambda comm: program(comm) if comm.rank < 2 else refused(comm)
    )
    assert len(set(messages)) == 1
    assert "[rank 0/3] all-reduce.7: ranks {1} bound another collective here" in messages[0]
    assert "this is a defect of spmd-executor" in messages[0]


def refused(comm: SharedMemoryRank) -> str:
    """A rank that has no part in the group hears of it too."""
    comm.allocate(1 << 17)
    with pytest.raises(RunError) as caught:
        comm.connect()
    return str(caught.value)


def test_a_rank_that_has_bound_less_is_refused() -> None:
    def program(comm: SharedMemoryRank) -> None:
        value = np.zeros(4, np.float32)
        if comm.rank == 0:
            comm.bind(AllReduce((0, 1), ReductionKind.SUM), "all-reduce.7", [value], [value])
        with pytest.raises(RunError, match=r"all-reduce\.7: ranks \{1\} bound another collective"):
            comm.connect()

    run_shared_memory_ranks(2, program)


def test_the_late_rank_is_named_and_the_collective_goes_on_when_it_comes() -> None:
    def program(comm: SharedMemoryRank) -> None:
        value = np.ones(4, np.float32)
        bound = comm.bind(AllReduce((0, 1, 2), ReductionKind.SUM), "late", [value], [value])
        comm.connect()
        comm.timeout_seconds = 0.3
        if comm.rank != 1:
            bound.start()
            assert not bound.test()
            with pytest.raises(
                CollectiveTimeoutError, match=r"late: .* nothing received from \[1\]"
            ):
                bound.wait()
        comm.barrier()
        if comm.rank == 1:
            bound.start()
        bound.wait()
        assert value.tolist() == [3.0] * 4

    run_shared_memory_ranks(3, program)


def test_a_start_before_connecting_is_refused() -> None:
    def program(comm: SharedMemoryRank) -> None:
        value = np.ones(4, np.float32)
        bound = comm.bind(AllReduce((0, 1), ReductionKind.SUM), "early", [value], [value])
        with pytest.raises(RunError, match="early is used before it was connected"):
            bound.start()
        comm.connect()

    run_shared_memory_ranks(2, program)


def test_offsets_outside_of_an_array_are_an_error() -> None:
    def program(comm: SharedMemoryRank) -> None:
        memory = comm.allocate(1 << 12)
        source = memory[:256].view(np.float32).reshape(8, 8)
        output = memory[256:512].view(np.float32).reshape(8, 8)
        tables = [memory[512 + 64 * i :][:8].view(np.int32) for i in range(4)]
        tables[1][:] = 9  # rows to each
        bound = comm.bind(RaggedAllToAll((0, 1)), "ragged", [source, output, *tables], [output])
        comm.connect()
        comm.barrier()

        def run() -> None:
            bound.start()
            bound.wait()

        with pytest.raises(RunError, match="ragged: offsets and sizes point outside"):
            run()

    run_shared_memory_ranks(2, program)


def test_a_note_says_once_where_memory_is_shared_instead(tmp_path: Path) -> None:
    notes: list[str] = []

    def program(comm: SharedMemoryRank) -> None:
        for _ in range(3):
            assert not comm.allocate(10_000).any()

    places = [Directory(str(tmp_path / "missing")), Directory(str(tmp_path))]
    run_shared_memory_ranks(1, program, providers=places, notify=notes.append)
    missing = tmp_path / "missing"
    assert notes == [f"shared memory is a file in {tmp_path}, because {missing} cannot be used"]
