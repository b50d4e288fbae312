"""Tests of the registration of memory with NCCL, of its end, and of the end of communicators."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from collectives.communicator.actions.device_actions import DeviceArray
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from collectives.communicator.nccl import communicator
from collectives.communicator.nccl.api import NcclError
from collectives.communicator.nccl.communicator import NcclCollective
from collectives.communicator.nccl.registered_memory import MemoryBlock
from spmd.device import ReductionKind
from spmd.errors import RunError
from tests.collectives.communicator.nccl.device_ranks import COMMUNICATION, OnArrays, run_nccl
from tests.collectives.communicator.nccl.host_device import memory_at
from tests.collectives.communicator.nccl.nccl_double import DoubleApi, World

F32 = np.dtype(np.float32)
BLOCK_BYTES = 4096


def total(*group: int) -> Collective:
    return AllReduce(group, ReductionKind.SUM)


def array(block: MemoryBlock, offset: int, *shape: int) -> DeviceArray:
    """Return the array at ``offset`` of ``block``, whose elements are set to 1."""
    made = DeviceArray(block.ptr + offset, F32, shape)
    memory_at(made.pointer, made.nbytes).view(F32)[:] = 1
    return made


def values(of: DeviceArray) -> np.ndarray:
    return memory_at(of.pointer, of.nbytes).view(F32).reshape(of.shape)


def complete(comm: OnArrays, bound: NcclCollective) -> None:
    bound.enqueue(COMMUNICATION)
    comm.inner.wait(COMMUNICATION)


def sum_in_a_block(
    offset_of: Callable[[int], int] = lambda _: 0, num_bytes: int = BLOCK_BYTES
) -> Callable[[OnArrays], None]:
    """Return a program whose ranks add arrays at ``offset_of(rank)`` of a block, in place."""

    def program(comm: OnArrays) -> None:
        block = comm.inner.allocate(num_bytes)
        one = array(block, offset_of(comm.rank), 8)
        bound = comm.inner.bind(total(0, 1), "all-reduce.1", [one], [one])
        comm.connect()
        complete(comm, bound)
        assert (values(one) == 2).all()

    return program


# ---- what is registered
def test_a_block_is_a_symmetric_window_of_each_communicator_that_uses_it() -> None:
    world = World(4)

    def program(comm: OnArrays) -> None:
        block = comm.inner.allocate(BLOCK_BYTES)
        row = (0, 1) if comm.rank < 2 else (2, 3)
        one = array(block, 256, 8)
        bound = [
            comm.inner.bind(total(*group), "all-reduce", [one], [one])
            for group in (row, (0, 1, 2, 3))
        ]
        comm.connect()
        for each in bound:
            complete(comm, each)
        assert (values(one) == 8).all()

    run_nccl(4, program, world)
    everyone = (0, 1, 2, 3)
    assert sorted(world.registered) == sorted(
        [(True, (0, 1))] * 2 + [(True, (2, 3))] * 2 + [(True, everyone)] * 4
    )


def test_scratch_is_a_window_of_the_same_size_on_all_ranks() -> None:
    """Ranks 0 and 1 need more scratch than ranks 2 and 3, which are with them in another group."""
    world = World(4)

    def program(comm: OnArrays) -> None:
        block = comm.inner.allocate(BLOCK_BYTES)
        if comm.rank < 2:
            large, joined = array(block, 1024, 2, 100), array(block, 2048, 2, 200)
            comm.inner.bind(AllGather((0, 1), 1), "all-gather.1", [large], [joined])
        operand, whole = array(block, 0, 2, 4), array(block, 256, 2, 16)
        bound = comm.inner.bind(AllGather((0, 1, 2, 3), 1), "all-gather.2", [operand], [whole])
        comm.connect()
        complete(comm, bound)
        assert (values(whole) == 1).all()

    run_nccl(4, program, world)
    assert world.registered.count((True, (0, 1, 2, 3))) == 8  # the block and the scratch


def test_the_own_part_of_a_gathered_or_scattered_array_is_in_place() -> None:
    """The own part is at another offset on each rank, which symmetric windows allow."""
    world = World(2)

    def program(comm: OnArrays) -> None:
        block = comm.inner.allocate(BLOCK_BYTES)
        whole, part = array(block, 0, 16), array(block, 32 * comm.rank, 8)
        gather = comm.inner.bind(AllGather((0, 1), 0), "all-gather", [part], [whole])
        scatter = comm.inner.bind(
            ReduceScatter((0, 1), ReductionKind.SUM, 0), "reduce-scatter", [whole], [part]
        )
        comm.connect()
        complete(comm, gather)
        complete(comm, scatter)
        assert (values(part) == 2).all()

    run_nccl(2, program, world)
    assert world.registered == [(True, (0, 1))] * 2


def test_a_block_that_members_access_at_other_offsets_is_no_symmetric_window() -> None:
    world = World(2)
    run_nccl(2, sum_in_a_block(lambda rank: 64 * rank), world)
    assert world.registered == [(False, (0, 1))] * 2


def test_before_windows_blocks_are_registered_as_buffers() -> None:
    world = World(2, version=22605)
    run_nccl(2, sum_in_a_block(), world)
    assert world.registered == [(False, (0, 1))] * 2


def test_where_there_are_no_windows_blocks_are_registered_as_buffers() -> None:
    world = World(2)
    world.has_windows = False
    run_nccl(2, sum_in_a_block(), world)
    assert world.registered == [(False, (0, 1))] * 2


@pytest.mark.parametrize(
    ("version", "registers", "why"),
    [
        (21805, True, "NCCL 2.18.5 does not register memory, as 2.19 does"),
        (23004, False, "NCCL does not register memory here"),
    ],
)
def test_without_registration_there_is_one_note(version: int, registers: bool, why: str) -> None:
    world = World(2, version)
    world.has_windows = world.registers = registers
    notes: list[str] = []

    def twice(comm: OnArrays) -> None:
        for _ in range(2):
            sum_in_a_block()(comm)

    run_nccl(2, twice, world, notify=notes.append)
    assert world.registered == []
    assert notes == [f"{why}: collectives between GPUs copy through NCCL's buffers"]


def test_ranks_that_share_a_gpu_register_nothing() -> None:
    world = World(2)
    run_nccl(2, sum_in_a_block(), world, registers=False)
    assert world.registered == []
    assert not world.memory


# ---- failures
def test_a_registration_that_fails_on_one_rank_is_said_by_all() -> None:
    """The other rank waits in NCCL, and is freed by the abort."""
    world = World(2)
    world.failing_window[1] = "unhandled cuda error (out of memory)"

    def program(comm: OnArrays) -> str:
        try:
            sum_in_a_block()(comm)
        except RunError as error:
            return str(error)
        return ""

    want = (
        "the registration of memory with NCCL failed: "
        "rank 1: ncclCommWindowRegister: unhandled cuda error (out of memory)"
    )
    assert run_nccl(2, program, world) == [want] * 2
    assert all(end.aborted for end in world.ends.values())


def test_a_registration_that_does_not_end_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    register = DoubleApi.register_window

    def hang(api: DoubleApi, comm: object, *arguments: int) -> int:
        while api.rank == 1 and not api._end(comm).aborted:  # type: ignore[arg-type]
            time.sleep(0.01)
        return register(api, comm, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DoubleApi, "register_window", hang)

    def program(comm: OnArrays) -> str:
        with pytest.raises(RunError) as caught:
            sum_in_a_block()(comm)
        return str(caught.value)

    want = "the registration of memory with NCCL: {0,1} did not finish within 0.5 s"
    assert run_nccl(2, program, timeout_seconds=0.5) == [want] * 2


def test_blocks_of_other_sizes_are_refused() -> None:
    def program(comm: OnArrays) -> None:
        sum_in_a_block(num_bytes=BLOCK_BYTES * (comm.rank + 1))(comm)

    with pytest.raises(RunError, match=r"rank 1 has blocks of \[8192\] bytes .*rank 0 of \[4096\]"):
        run_nccl(2, program)


# ---- the end
@pytest.mark.parametrize("version", [22605, 23004])
def test_memory_is_freed_after_its_registrations(version: int) -> None:
    """The double refuses memory that is freed before, and scratch is freed with the collectives that use it."""
    world = World(2, version)

    def program(comm: OnArrays) -> None:
        sum_in_a_block()(comm)
        comm.inner.host.barrier()
        assert not world.memory
        assert not any(end.registered.of for end in world.ends.values())
        comm.inner.host.barrier()
        sum_in_a_block()(comm)

    run_nccl(2, program, world)


def test_memory_is_freed_after_an_abort() -> None:
    world = World(2)

    def program(comm: OnArrays) -> None:
        block = comm.inner.allocate(BLOCK_BYTES)
        comm.inner.bind(total(0, 1), "all-reduce.2", [array(block, 0, 8)], [array(block, 0, 8)])
        comm.connect()
        comm.inner._cliques.abort()
        del block

    run_nccl(2, program, world)
    assert not world.memory


class Program:
    """A program with a graph."""

    def __init__(self, comm: OnArrays) -> None:
        value = np.ones(3, np.float32)
        bound = comm.bind(total(0, 1), "all-reduce.3", [value], [value])
        comm.connect()
        comm.device.begin_capture(COMMUNICATION)
        bound.start()
        self.graphs = [comm.device.end_capture(COMMUNICATION)]
        comm.inner.captured()
        comm.inner.add_program(self)

    def release_graphs(self) -> None:
        self.graphs.clear()


def test_communicators_are_freed_at_the_end_by_all_ranks_after_their_graphs() -> None:
    world = World(2)
    programs: list[Program] = []  # still referenced at the end, as the globals of a script
    run_nccl(2, lambda comm: programs.append(Program(comm)), world)
    assert [program.graphs for program in programs] == [[], []]
    # the communicator of the group, and that of all ranks
    assert sorted(world.destroyed) == [(0, (0, 1))] * 2 + [(1, (0, 1))] * 2


def test_a_rank_that_leaves_alone_does_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "_END_SECONDS", 0.2)

    def program(comm: OnArrays) -> float:
        sum_in_a_block()(comm)
        start = time.monotonic()
        if comm.rank == 0:
            comm.inner.leave()
        taken = time.monotonic() - start
        comm.inner.host.barrier()
        return taken

    assert run_nccl(2, program)[0] < 5


def test_after_a_failure_nothing_is_freed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ranks would not come to free communicators, even where NCCL could not abort them."""

    def fail(*_: object) -> None:
        raise NcclError("ncclCommAbort: unhandled cuda error")

    monkeypatch.setattr(DoubleApi, "abort", fail)
    world = World(2)

    def program(comm: OnArrays) -> None:
        sum_in_a_block()(comm)
        comm.inner._watch.fail("all-reduce.4: the GPU failed")

    run_nccl(2, program, world)
    assert world.destroyed == []
