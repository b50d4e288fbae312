"""The MPI communicator under mpirun: the same scenarios, bit for bit, as loopback passes."""

from __future__ import annotations

import pytest
from bound_collectives import InAllocatedMemory
from collective_scenarios import SCENARIOS

from collectives.communicator.interface import Communicator

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "all_reduce_of_every_type"])
def test_scenario_over_shared_memory(name: str, comm: Communicator) -> None:
    """All types would mean a hundred kernels on every rank: tests/collectives/communicator has them."""
    SCENARIOS[name](comm)
    comm.barrier()


@pytest.mark.parametrize(
    "name", ["all_reduce_in_place", "permute_in_place", "several_in_flight_on_overlapping_groups"]
)
def test_scenario_in_allocated_memory(name: str, comm: Communicator) -> None:
    SCENARIOS[name](InAllocatedMemory(comm))
    comm.barrier()


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_by_messages(name: str, message_comm: Communicator) -> None:
    SCENARIOS[name](message_comm)
    message_comm.barrier()
