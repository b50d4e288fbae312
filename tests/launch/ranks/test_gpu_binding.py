"""Tests of which GPU a rank takes, and of how the ranks' GPUs meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from collectives.communicator.loopback.communicator import LoopbackCommunicator
from launch.ranks.gpu_binding import (
    GpuTransport,
    RankGpu,
    agreed_transport,
    gpu_index,
    local_rank,
    set_where_unset,
    transport_of,
)
from runtime.gpu.errors import NoGpuError
from spmd.errors import RunError
from tests.loopback_ranks import run_ranks


def gpus(units: Sequence[str], nccl: int = 23004, node: str = "a") -> list[RankGpu]:
    return [RankGpu(k, "H200", unit, node, nccl) for k, unit in enumerate(units)]


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, 1),
        ({"PMI_SIZE": "8", "PMI_RANK": "5", "MPI_LOCALRANKID": "1"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "1"}, 1),
        ({"PMI_SIZE": "8", "PMI_RANK": "5"}, 2),  # a launcher that does not say: by the place among the node's ranks
        ({}, 2),
    ],
)  # fmt: skip
def test_number_on_the_node(environment: Mapping[str, str], number: int) -> None:
    assert local_rank(5, (1, 3, 5, 7), environment) == number


def test_ranks_take_gpus_in_turns() -> None:
    assert [gpu_index(4, rank, {}) for rank in range(6)] == [0, 1, 2, 3, 0, 1]


def test_a_gpu_that_a_launcher_shows_alone_is_taken() -> None:
    assert [gpu_index(1, rank, {"CUDA_VISIBLE_DEVICES": str(rank)}) for rank in range(3)] == [
        0,
        0,
        0,
    ]


def test_hidden_gpus_are_said() -> None:
    with pytest.raises(NoGpuError, match=r"this rank sees no GPU \(CUDA_VISIBLE_DEVICES=\)"):
        gpu_index(0, 0, {"CUDA_VISIBLE_DEVICES": ""})
    with pytest.raises(NoGpuError, match=r"this rank sees no GPU$"):
        gpu_index(0, 0, {})


def test_a_gpu_each_meets_through_nccl() -> None:
    transport = transport_of(gpus("pqrs"))
    assert transport == GpuTransport(True, "", ({},) * 4)


def test_the_same_number_on_two_nodes_is_another_gpu() -> None:
    assert transport_of([*gpus("pq"), *gpus("pq", node="b")]).through_nccl


def test_ranks_on_one_gpu_meet_through_their_hosts_which_is_said() -> None:
    transport = transport_of(gpus("ppqq"))
    assert not transport.through_nccl
    assert transport.why == "ranks {0,1} share one GPU, H200; 1 more GPU is shared"
    assert transport.variables == ({}, {}, {}, {})


def test_ranks_on_one_gpu_meet_through_nccl_where_that_is_asked_for() -> None:
    transport = transport_of(gpus("pp"), "nccl")
    assert transport.through_nccl
    assert transport.why == "ranks {0,1} share one GPU, H200; SPMD_GPU_COLLECTIVES=nccl"
    assert [own["NCCL_MULTI_RANK_GPU_ENABLE"] for own in transport.variables] == ["1", "1"]
    assert transport.max_ctas == 4
    assert not transport.registers


def test_an_older_nccl_is_told_of_hosts_that_differ() -> None:
    transport = transport_of(gpus("pp", nccl=22907), "nccl")
    assert [own["NCCL_HOSTID"] for own in transport.variables] == ["rank0", "rank1"]
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in transport.variables[0]


def test_more_ranks_on_one_gpu_than_nccl_takes_are_refused() -> None:
    with pytest.raises(
        RunError, match=r"ranks \{0,1,2\} share one GPU, H200; NCCL allows 2 per GPU"
    ):
        transport_of(gpus("ppp"), "nccl")
    assert not transport_of(gpus("ppp")).through_nccl


def test_hosts_where_that_is_asked_for() -> None:
    transport = transport_of(gpus("pq"), "host")
    assert not transport.through_nccl
    assert transport.why == "SPMD_GPU_COLLECTIVES=host"


def test_another_wish_is_refused() -> None:
    with pytest.raises(RunError, match="expected SPMD_GPU_COLLECTIVES=nccl or host, found 'gloo'"):
        transport_of(gpus("pq"), "gloo")


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (RankGpu(1, "H200", "q", "a", 0, "no libnccl.so.2"), "rank 1 has no NCCL: no libnccl.so.2"),
        (RankGpu(1, "H200", "q", "a", 22907), "rank 1 has NCCL 2.29.7, rank 0 2.30.4"),
    ],
)
def test_a_rank_without_the_others_nccl_is_named(odd: RankGpu, why: str) -> None:
    own = [gpus("p")[0], odd]
    transport = transport_of(own)
    assert not transport.through_nccl
    assert transport.why == why
    with pytest.raises(RunError, match=f"SPMD_GPU_COLLECTIVES=nccl: {why}"):
        transport_of(own, "nccl")


def test_what_the_user_has_set_stays() -> None:
    environment = {"NCCL_MULTI_RANK_GPU_ENABLE": "0"}
    set_where_unset({"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_HOSTID": "rank0"}, environment)
    assert environment == {"NCCL_MULTI_RANK_GPU_ENABLE": "0", "NCCL_HOSTID": "rank0"}


def test_ranks_tell_each_other() -> None:
    own = gpus("pqp")

    def program(comm: LoopbackCommunicator) -> GpuTransport:
        return agreed_transport(comm, own[comm.rank], "")

    assert run_ranks(3, program) == [transport_of(own)] * 3
