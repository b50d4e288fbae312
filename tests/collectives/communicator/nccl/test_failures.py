"""Tests that every rank concerned reports a failure among GPUs, with the rank, the collective and the cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from loopback_ranks import run_ranks

from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.op import Collective
from collectives.communicator.loopback.communicator import LoopbackCommunicator
from collectives.communicator.nccl import watchdog_thread
from collectives.communicator.nccl.api import NcclError, NcclResult
from collectives.communicator.nccl.communicator import NcclCommunicator
from collectives.communicator.nccl.group_communicators import rounds_of
from spmd.device import ReductionKind
from spmd.errors import CollectiveTimeoutError, RunError
from tests.collectives.communicator.nccl.device_ranks import (
    COMMUNICATION,
    COMPUTE,
    BoundOnArrays,
    OnArrays,
    on_device,
    run_nccl,
)
from tests.collectives.communicator.nccl.host_device import HostDevice
from tests.collectives.communicator.nccl.nccl_double import DoubleApi, World


def total(*group: int) -> Collective:
    return AllReduce(group, ReductionKind.SUM)


def bound(comm: OnArrays, collective: Collective, name: str, elements: int = 3) -> BoundOnArrays:
    return comm.bind(
        collective, name, [np.ones(elements, np.float32)], [np.empty(elements, np.float32)]
    )


def texts(size: int, world: World, program: Callable[[OnArrays], None] | None = None, seconds: float = 60.0,
          give_up: Callable[[str], None] = lambda _: None) -> list[str]:  # fmt: skip
    """Run ``program`` on each rank and return the ranks' error messages; "" for a rank without an error."""

    def on_rank(host: LoopbackCommunicator) -> str:
        with HostDevice() as device:
            try:
                inner = NcclCommunicator(
                    host,
                    world.api(host.rank, device),
                    device,
                    timeout_seconds=seconds,
                    give_up=give_up,
                )
                if program is not None:
                    program(OnArrays(inner, device))
                host.barrier()
                inner.leave()
            except RunError as error:
                return str(error)
        return ""

    return run_ranks(size, on_rank, seconds)


# ---- the start
def test_a_start_that_fails_on_one_rank_is_said_by_all() -> None:
    world = World(4)
    world.failing_start[2] = "unhandled cuda error (out of memory)"
    said = texts(4, world)
    assert len(set(said)) == 1
    assert said[0] == (
        "NCCL's communicator of 4 ranks failed: "
        "rank 2: ncclCommInitRankConfig: unhandled cuda error (out of memory)"
    )
    assert all(end.aborted for end in world.ends.values())


def test_a_start_that_does_not_end_has_a_limit() -> None:
    world = World(3)
    world.hangs_in_start.add(1)
    said = texts(3, world, seconds=0.5)
    assert set(said) == {"NCCL's communicator of 3 ranks: {0,1,2} did not finish within 0.5 s"}


def test_an_id_that_cannot_be_had_is_said_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: DoubleApi) -> bytes:
        raise NcclError("ncclGetUniqueId: no network interface")

    monkeypatch.setattr(DoubleApi, "unique_id", fail)
    assert set(texts(2, World(2))) == {
        "NCCL cannot be started: rank 0: ncclGetUniqueId: no network interface"
    }


def test_a_split_that_fails_on_one_rank_is_said_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    split = DoubleApi.split

    def fail(api: DoubleApi, *arguments: object) -> object:
        if api.rank == 3:
            raise NcclError("ncclCommSplit: too many open files")
        return split(api, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DoubleApi, "split", fail)

    def program(comm: OnArrays) -> None:
        bound(comm, total(0, 1) if comm.rank < 2 else total(2, 3), "rows")
        comm.connect()

    said = texts(4, World(4), program)
    want = "split 0 of NCCL's communicator (groups {0,1} {2,3}) failed: rank 3: ncclCommSplit: too many open files"
    assert set(said) == {want}


def test_ranks_that_bind_other_things_are_named() -> None:
    def program(comm: OnArrays) -> None:
        bound(comm, total(0, 1, 2), "all", elements=4 if comm.rank == 2 else 3)
        comm.connect()

    said = texts(3, World(3), program)
    assert set(said) == {
        "group {0,1,2} does not bind the same collectives: rank 2 differs from rank 0"
    }


# ---- cliques
def test_groups_without_a_common_rank_are_split_off_at_once() -> None:
    rows, columns = [(0, 1), (2, 3)], [(0, 2), (1, 3)]
    assert rounds_of([rows[0], columns[0], columns[1], rows[1]]) == [rows, columns]


def test_one_communicator_for_each_group_whatever_meets_there() -> None:
    world = World(4)

    def program(comm: OnArrays) -> None:
        row = total(0, 1) if comm.rank < 2 else total(2, 3)
        for name in "ab":
            bound(comm, row, name)
        bound(comm, total(0, 2), "c") if comm.rank in (0, 2) else None
        bound(comm, total(3, 2, 1, 0), "d")
        bound(comm, total(comm.rank), "e")
        comm.connect()
        bound(comm, row, "f").world.connect()

    run_nccl(4, program, world)
    assert world.made == [(0, 1), (2, 3), (0, 2), (3, 2, 1, 0)]


# ---- actions
def test_a_peer_that_does_not_come_is_named_with_its_whereabouts() -> None:
    def program(comm: OnArrays) -> None:
        first, second = (
            bound(comm, total(0, 1, 2), "all-reduce.3"),
            bound(comm, total(0, 1, 2), "all-reduce.4"),
        )
        comm.connect()
        first.complete()
        if comm.rank == 2:
            comm.inner.host.note("computes dot.7")
            time.sleep(2.0)
        second.complete()

    with pytest.raises(CollectiveTimeoutError) as caught:
        run_nccl(3, program, timeout_seconds=0.5)
    message = str(caught.value)
    assert "all-reduce.4: group {0,1,2} did not complete within 0.5 s" in message
    assert "missing {2} (rank 2 computes dot.7)" in message


def test_a_host_does_not_run_far_ahead_of_a_gpu_that_waits_in_vain() -> None:
    """The host looks at the GPU after a few launches.

    A GPU's queue is short: a host that never looked would hang in a launch, and report nothing.
    """
    put: list[int] = []

    def program(comm: OnArrays) -> None:
        held = [bound(comm, total(0, 1), f"all-reduce.{k}") for k in range(3)]
        comm.connect()
        if comm.rank == 1:
            time.sleep(2.0)
            return
        for run in range(100):
            for one in held:
                one.start()
                put.append(run)

    with pytest.raises(
        CollectiveTimeoutError, match=r"all-reduce\.0: group \{0,1\} did not complete"
    ):
        run_nccl(2, program, timeout_seconds=0.5)
    assert len(put) <= 16


def test_many_runs_that_nobody_waits_for() -> None:
    def program(comm: OnArrays) -> None:
        value = np.array([1.0])
        one = comm.bind(total(0, 1), "all-reduce.0", [value], [value])
        comm.connect()
        for _ in range(50):
            one.start()
        one.wait()
        assert value[0] == 2.0**50

    run_nccl(2, program)


def test_a_gpu_that_computes_for_long_is_waited_for() -> None:
    """A computation may take longer than the limit, which is for peers."""

    def program(comm: OnArrays) -> None:
        one = bound(comm, total(0, 1), "all-reduce.1")
        comm.connect()
        comm.device.streams[COMMUNICATION].put(lambda: time.sleep(1.2))
        one.complete()

    run_nccl(2, program, timeout_seconds=0.4)


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_an_error_that_nccl_finds_later_names_the_collective(late: float) -> None:
    world = World(2)

    def program(comm: OnArrays) -> None:
        one = bound(comm, total(0, 1), "all-reduce.5")
        comm.connect()
        one.complete()
        if comm.rank == 1:
            time.sleep(late)
            world.plant(0, NcclResult.REMOTE_ERROR, "connection closed by peer")
            time.sleep(1.0)
            return
        one.complete()

    said = texts(2, world, program)
    assert said[0] == (
        "[rank 0/2] all-reduce.5: group {0,1}: NCCL: remote error (connection closed by peer)"
    )


def test_a_call_that_does_not_come_back_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog aborts a call that hangs, such as one that connects to a peer which is gone, and the call fails."""

    def hang(api: DoubleApi, comm: object, *_: object) -> None:
        end = api._end(comm)  # type: ignore[arg-type]
        while not end.aborted:
            time.sleep(0.01)
        raise NcclError("ncclAllReduce: aborted")

    monkeypatch.setattr(DoubleApi, "all_reduce", hang)

    def program(comm: OnArrays) -> None:
        one = bound(comm, total(0, 1), "all-reduce.6")
        comm.connect()
        one.complete()

    said = texts(2, World(2), program, seconds=0.3)
    assert said == [
        f"[rank {rank}/2] all-reduce.6: the call of NCCL has not returned for 0.3 s"
        for rank in (0, 1)
    ]


def test_an_abort_that_does_not_come_back_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog_thread, "ESCALATION_SECONDS", 0.2)
    given_up = threading.Event()
    said: list[str] = []

    def give_up(text: str) -> None:
        said.append(text)
        given_up.set()

    def hang(*_: object) -> None:
        given_up.wait(10)
        raise NcclError("ncclAllReduce: the process would have ended")

    monkeypatch.setattr(DoubleApi, "all_reduce", hang)
    world = World(2)
    world.stuck_abort.update((0, 1))

    def program(comm: OnArrays) -> None:
        one = bound(comm, total(0, 1), "all-reduce.7")
        comm.connect()
        one.complete()

    texts(2, world, program, seconds=0.3, give_up=give_up)
    assert "all-reduce.7" in said[0]
    assert said[0].endswith("NCCL did not return within 0.2 s")


def test_collectives_on_two_streams_follow_each_other() -> None:
    """Collectives on the streams for communication and computation do not use the scratch at the same time."""

    def program(comm: OnArrays) -> None:
        value = np.full((2, 500), comm.rank, np.float32)
        results = [np.empty((2, 1000), np.float32) for _ in range(2)]
        kind = AllGather((0, 1), 1)
        one, two = (
            comm.bind(kind, f"all-gather.{k}", [value], [result])
            for k, result in enumerate(results)
        )
        comm.connect()
        for _ in range(20):
            for result in results:
                result.fill(-1)
            one.bound.enqueue(COMMUNICATION)
            two.bound.enqueue(COMPUTE)
            for stream in (COMPUTE, COMMUNICATION):
                comm.inner.wait(stream)
            for result in results:
                assert (result[:, :500] == 0).all()
                assert (result[:, 500:] == 1).all()

    run_nccl(2, program)


def test_another_thread_is_refused() -> None:
    def program(comm: OnArrays) -> None:
        one = bound(comm, total(0, 1), "all-reduce.8")
        comm.connect()
        one.complete()
        found: list[RunError] = []

        def other() -> None:
            try:
                one.start()
            except RunError as error:
                found.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert "issued by one thread" in str(found[0])

    run_nccl(2, program)


class WithGraph:
    """A program with a graph of ``held``."""

    def __init__(self, comm: OnArrays, held: list[BoundOnArrays]) -> None:
        self.comm, device = comm, comm.device
        device.begin_capture(COMPUTE)
        for one in held:
            one.bound.enqueue(COMPUTE)
        self.graph = device.end_capture(COMPUTE)
        self.captured = comm.inner.captured()
        assert [one.name for one in self.captured] == [one.bound.name for one in held]
        assert comm.inner.captured() == ()
        comm.inner.add_program(self)

    def release_graphs(self) -> None:
        self.graph.clear()

    def run(self) -> None:
        self.comm.inner.replay(self.captured, COMPUTE, self._launch)
        self.comm.inner.wait(COMPUTE)

    def _launch(self) -> None:
        for work in tuple(self.graph):
            self.comm.device.put(COMPUTE, work)


def replayed(comm: OnArrays, held: list[BoundOnArrays], late: float) -> None:
    """Capture ``held`` as a graph, and launch it twice; rank 1 comes ``late`` to the second time."""
    program = WithGraph(comm, held)
    for run in range(2):
        if (comm.rank, run) == (1, 1):
            time.sleep(late)
        program.run()


def test_a_graph_is_replayed() -> None:
    def program(comm: OnArrays) -> None:
        value = np.array([comm.rank + 1.0])
        held = [comm.bind(total(0, 1), f"all-reduce.{k}", [value], [value]) for k in range(2)]
        comm.connect()
        replayed(comm, held, 0.0)
        assert value[0] == 3 * 2 * 2 * 2

    run_nccl(2, program)


def test_a_graph_that_waits_in_vain_is_named_by_what_it_holds() -> None:
    def program(comm: OnArrays) -> None:
        held = [bound(comm, total(0, 1), f"all-reduce.{k}") for k in range(5)]
        comm.connect()
        replayed(comm, held, 2.0)

    with pytest.raises(CollectiveTimeoutError) as caught:
        run_nccl(2, program, timeout_seconds=0.5)
    message = str(caught.value)
    assert "all-reduce.0, all-reduce.1, all-reduce.2, ... (of one CUDA graph)" in message
    assert "missing {1}" in message


def test_what_nccl_cannot_do_is_refused() -> None:
    def program(comm: OnArrays) -> None:
        one = on_device(np.ones(3, np.int32))
        with pytest.raises(RunError, match=r"all-reduce\.9: NCCL has no xor of s32"):
            comm.inner.bind(AllReduce((0, 1), ReductionKind.XOR), "all-reduce.9", [one], [one])

    run_nccl(2, program)
