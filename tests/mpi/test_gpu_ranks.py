"""Ranks whose GPUs are doubles, on the host's memory: their collectives go through the hosts, to JAX's results."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from collectives.communicator.interface import Communicator
from collectives.communicator.nccl.arrivals import Arrivals
from collectives.communicator.nccl.in_flight import AsyncCollective, InFlightCollectives
from launch.checks.expect import check_output, read_expected
from launch.data.inputs import read_inputs
from launch.entry import Entry
from launch.pipeline import compile_module
from launch.ranks.rank_executable import RankExecutable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.options import GpuOptions
from spmd.errors import CollectiveTimeoutError
from spmd.text.sources.load import load
from tests.paths import CASES
from tests.runtime.gpu.doubles.engines import ptx_of_all
from tests.runtime.gpu.doubles.host_driver import HostDriver

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator

NAMES = {2: "mlp_dp2", 4: "ring_attention4", 8: "mlp_fsdp8"}

pytestmark = pytest.mark.mpi(min_size=2)


def test_case_through_the_hosts(comm: Communicator) -> None:
    folder = CASES / NAMES[comm.size]
    assert json.loads((folder / "case.json").read_text())["num_partitions"] == comm.size
    executable = compile_module(load(folder / "module.hlo"), comm.size)
    driver = HostDriver()
    executable.engine = GpuEngine(lambda _: driver, lambda _: ptx_of_all, GpuOptions())
    own = RankExecutable.of(executable, comm)
    entry = Entry.of_module(load(folder / "module.hlo"))
    inputs = read_inputs(folder / "inputs.npz", entry.inputs)
    for _ in range(3):
        outputs = own.run(*inputs, gather="all")
        assert isinstance(outputs, list)
        wanted = read_expected(folder / "expected.npz", entry.outputs)
        for got, want in zip(outputs, wanted, strict=True):
            result = check_output(got, want)
            assert result.ok, result


def test_who_has_come_is_seen_by_the_ranks_of_a_node(comm: Communicator) -> None:
    everyone = tuple(range(comm.size))
    arrivals = Arrivals(comm, [everyone[::-1], everyone])
    if comm.rank == 0:
        assert arrivals.arrive(everyone) == 1
    comm.barrier()
    assert arrivals.missing(everyone, 1) == list(everyone[1:])
    assert arrivals.missing(everyone[::-1], 1) == list(everyone[::-1])
    comm.barrier()


def test_of_ranks_on_other_nodes_nothing_is_certain(spread_comm: Communicator) -> None:
    everyone = tuple(range(spread_comm.size))
    arrivals = Arrivals(spread_comm, [everyone])
    missing = arrivals.missing(everyone, 1)
    assert spread_comm.rank in missing
    assert set(missing) <= set(everyone)
    spread_comm.barrier()


def test_a_rank_that_does_not_come_is_named(comm: MpiCommunicator) -> None:
    """Rank 1 has not put the collective on its GPU, and waits for nobody."""
    everyone = tuple(range(comm.size))
    arrivals = Arrivals(comm, [everyone])
    if comm.rank == 1:
        comm.note("computes dot.7")
        time.sleep(3.0)
    else:
        count = arrivals.arrive(everyone)
        flights = InFlightCollectives(comm)
        done, never = Past(), Never()
        flights.begin(
            AsyncCollective(
                "all-reduce.3", everyone, done, never, lambda: arrivals.missing(everyone, count)
            )
        )
        limit, comm.timeout_seconds = comm.timeout_seconds, 1.0
        with pytest.raises(CollectiveTimeoutError) as caught:
            flights.wait(never.is_done)
        comm.timeout_seconds = limit
        assert f"[rank {comm.rank}/{comm.size}] all-reduce.3: group" in str(caught.value)
        assert (
            "did not complete within 1 s: nothing received from {1} (rank 1 computes dot.7"
            in str(caught.value)
        )
    comm.barrier()


class Past:
    """An event that has come to pass."""

    def record(self, stream: int) -> None: ...

    def hold_up(self, stream: int) -> None: ...

    def is_done(self) -> bool:
        return True


class Never(Past):
    def is_done(self) -> bool:
        return False
