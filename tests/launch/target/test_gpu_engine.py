"""Tests of what ranks with GPUs are given, with doubles: the GPU that they take, and NCCL's communicator or none."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.liveness.status_table import RankState
from collectives.communicator.loopback.communicator import LoopbackCommunicator
from collectives.communicator.nccl import api as nccl_api
from collectives.communicator.nccl.communicator import NcclCommunicator
from collectives.communicator.node.node import Node, Nodes
from launch.target import engine_choice
from runtime.gpu import availability
from runtime.gpu.cuda import engine as cuda_engine
from runtime.gpu.engine import GpuEngine
from spmd.device import ReductionKind
from tests.collectives.communicator.nccl.device_ranks import OnArrays
from tests.collectives.communicator.nccl.host_device import HostDevice
from tests.collectives.communicator.nccl.nccl_double import DoubleApi, World
from tests.loopback_ranks import run_ranks

LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


@dataclass(eq=False)
class Ranked:
    """A communicator of a job's rank on one node with the others."""

    inner: LoopbackCommunicator

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    @property
    def nodes(self) -> Nodes:
        everyone = tuple(range(self.inner.size))
        return Nodes(Node(everyone, 2), (0,) * self.inner.size)

    @property
    def timeout_seconds(self) -> float:
        return 60.0

    def set_rank_state(self, _: RankState) -> None:
        """The ranks are threads, whose process ends once."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A machine with GPUs and NCCL, as each rank's thread finds it."""
    own = threading.local()

    def make(ranks: int, num_gpus: int) -> tuple[World, list[str]]:
        world, notes = World(ranks), list[str]()

        def api() -> DoubleApi:
            return world.api(own.rank, own.device)

        for name in LAUNCHED:
            monkeypatch.delenv(name, raising=False)
        for name in ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID"):
            monkeypatch.setenv(name, "")  # so that what is set is undone
            monkeypatch.delenv(name)
        monkeypatch.setattr(availability, "require_gpu", lambda: num_gpus)
        monkeypatch.setattr(cuda_engine, "require_gpu", lambda: num_gpus)
        found = SimpleNamespace(identity_of=lambda k: SimpleNamespace(name="H200", unit=f"bus {k}"))
        monkeypatch.setitem(sys.modules, "runtime.gpu.cuda.identity", found)
        monkeypatch.setattr(nccl_api, "load_nccl", api)
        memory = SimpleNamespace(CudaMemory=lambda: own.device)
        monkeypatch.setitem(sys.modules, "collectives.communicator.nccl.cuda_memory", memory)
        monkeypatch.setattr(engine_choice, "report_note", notes.append)
        return world, notes

    make.own = own  # type: ignore[attr-defined]
    return make


def test_ranks_with_a_gpu_each_meet_through_nccl(machine) -> None:  # type: ignore[no-untyped-def]
    _, notes = machine(2, 2)

    def program(comm: LoopbackCommunicator) -> float:
        with HostDevice() as device:
            machine.own.rank, machine.own.device = comm.rank, device
            world = Ranked(comm)
            assert engine_choice.gpu_of_rank(world).index == comm.rank  # type: ignore[arg-type]
            engine = engine_choice.engine_of_ranks(world)  # type: ignore[arg-type]
            assert isinstance(engine, GpuEngine)
            collectives = engine.collectives()
            assert isinstance(collectives, NcclCommunicator)
            assert engine.collectives() is collectives
            on_arrays = OnArrays(collectives, device)
            value = np.array([comm.rank + 1.0])
            bound = on_arrays.bind(
                AllReduce((0, 1), ReductionKind.SUM), "all-reduce", [value], [value]
            )
            on_arrays.connect()
            bound.complete()
            collectives.leave()
            return float(value[0])

    assert run_ranks(2, program, 60) == [3.0, 3.0]
    assert notes == []


def test_ranks_that_share_a_gpu_meet_through_their_hosts(machine) -> None:  # type: ignore[no-untyped-def]
    _, notes = machine(4, 2)

    def program(comm: LoopbackCommunicator) -> int:
        machine.own.rank, machine.own.device = comm.rank, None
        world = Ranked(comm)
        engine = engine_choice.engine_of_ranks(world)  # type: ignore[arg-type]
        assert isinstance(engine, GpuEngine)
        assert engine.collectives() is None
        return engine_choice.gpu_of_rank(world).index  # type: ignore[arg-type]

    assert run_ranks(4, program, 60) == [0, 1, 0, 1]
    assert notes == [
        "collectives between GPUs use the hosts: ranks {0,2} share one GPU, H200; 1 more GPU is shared"
    ]


def test_a_rank_has_left_before_it_waits_for_the_end_of_nccl() -> None:
    """Peers that still wait for this rank must not see an error of NCCL first."""
    order: list[object] = []
    world = SimpleNamespace(set_rank_state=order.append)
    engine_choice._leave(world, SimpleNamespace(leave=lambda: order.append("NCCL")))  # type: ignore[arg-type]
    assert order == [RankState.LEFT, "NCCL"]
