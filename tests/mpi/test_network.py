"""Calibration of what joins nodes, on ranks that are told to be on two."""

from __future__ import annotations

import pytest

from launch.calibration.network import NetworkSizes, measure_network
from runtime.cpu.collective.collective_engine import native_collective_engine

pytestmark = pytest.mark.mpi(min_size=2)

SIZES = NetworkSizes(
    messages=(1 << 10, 1 << 16, 1 << 20), product=64, transfer_seconds=2e-3, steps=2, rounds=2
)


def test_a_network_is_measured() -> None:
    from mpi4py import MPI

    from collectives.communicator.mpi.communicator import MpiCommunicator

    size = MPI.COMM_WORLD.size
    number = MPI.COMM_WORLD.rank // (size // 2)
    comm = MpiCommunicator(
        timeout_seconds=60, engine=native_collective_engine(), node_id=f"node {number}"
    )
    devices = comm.nodes.devices_of_each
    assert devices == size // 2
    found = measure_network(comm, devices, SIZES)
    assert (found.nodes, found.devices) == (2, devices)
    assert [bytes_ for bytes_, _ in found.messages] == list(SIZES.messages)
    assert all(seconds > 0 for _, seconds in found.messages)
    way = found.exchange
    assert way.devices % devices == 0
    # These two nodes are one machine: neither slower than a modem nor faster than its memory.
    assert 1e4 < way.bandwidth < 1e12
    assert 0.0 <= way.busy <= 1.0
    comm.close()
