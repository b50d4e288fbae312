"""Tests under mpirun: a failing rank ends the job at once, and only rank 0 reports what passed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from launch.ranks.rank_environment import world_of_environment
from runtime.cpu.collective.collective_engine import native_collective_engine


@pytest.fixture(scope="session")
def comm() -> Iterator[object]:
    """The communicator of all ranks, which share memory."""
    from collectives.communicator.mpi.communicator import MpiCommunicator

    communicator = MpiCommunicator(timeout_seconds=60, engine=native_collective_engine())
    yield communicator
    communicator.close()


@pytest.fixture(scope="session")
def message_comm() -> Iterator[object]:
    """One that carries everything by messages, as between nodes."""
    from collectives.communicator.mpi.communicator import MpiCommunicator

    communicator = MpiCommunicator(timeout_seconds=60)
    yield communicator
    communicator.close()


@pytest.fixture(scope="session", params=["pairs", "alone"])
def spread_comm(request: pytest.FixtureRequest) -> Iterator[object]:
    """Ranks on several nodes, two on each or one."""
    from mpi4py import MPI

    from collectives.communicator.mpi.communicator import MpiCommunicator

    number = MPI.COMM_WORLD.rank // (2 if request.param == "pairs" else 1)
    communicator = MpiCommunicator(
        timeout_seconds=60, engine=native_collective_engine(), node_id=f"node {number}"
    )
    yield communicator
    communicator.close()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    world = world_of_environment()
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if world is not None and world[0] != 0 and reporter is not None:
        reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115, PTH123 - lives as long as the process


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """After a failure the ranks are no longer in step: print it and end all of them, instead of hanging."""
    world = world_of_environment()
    if report.failed and world is not None:
        from mpi4py import MPI

        print(f"[rank {world[0]}/{world[1]}] {report.nodeid} failed", file=sys.__stderr__)
        print(report.longreprtext, file=sys.__stderr__, flush=True)
        MPI.COMM_WORLD.Abort(1)
