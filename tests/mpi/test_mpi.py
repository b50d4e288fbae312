"""The MPI communicator under mpirun: the same scenarios, bit for bit, as loopback passes."""

from __future__ import annotations

import pytest
from collective_scenarios import SCENARIOS

from collectives.communicator.interface import Communicator

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, comm: Communicator) -> None:
    SCENARIOS[name](comm)
    comm.barrier()
