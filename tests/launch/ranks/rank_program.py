"""The program that each rank of the jobs in test_mpi_jobs runs: `python rank_program.py NAME [TIMEOUT]`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping

import numpy as np

from collectives.communicator.group import Array
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.liveness.status_table import StatusTable
from collectives.communicator.mpi import communicator
from collectives.communicator.mpi.communicator import MpiCommunicator
from collectives.communicator.native_collective import NativeCollective
from launch.ranks.agreement import agree
from launch.ranks.rank_environment import world_of_environment
from launch.ranks.shutdown import run_rank
from launch.ranks.world import open_world
from spmd.device import ReductionKind
from spmd.errors import RunError


def all_reduce(comm: MpiCommunicator, *, stalled_rank: int | None = None) -> float:
    value = np.array([1.0])
    everyone = AllReduce(tuple(range(comm.size)), ReductionKind.SUM)
    bound = comm.bind(everyone, "all-reduce.3", [value], [value])
    comm.connect()
    if comm.rank == stalled_rank:
        comm.note("computes dot.7")
        time.sleep(300)
    bound.start()
    bound.wait()
    return float(value[0])


def fine(comm: MpiCommunicator) -> int:
    assert agree(comm, lambda: ("go", {"module": "a"})) == "go"
    assert all_reduce(comm) == comm.size
    return 1 if comm.rank == 0 else 0  # a check that failed: exit code 1, no message


def different_modules(comm: MpiCommunicator) -> int:
    agree(comm, lambda: ("go", {"module": f"sha256 {'b' if comm.rank == 1 else 'a'}"}))
    return int(all_reduce(comm))


def raises_in_setup(comm: MpiCommunicator) -> int:
    def setup() -> tuple[str, dict[str, str]]:
        if comm.rank == 2:
            raise RunError("/data/step.hlo: no such file")
        return "go", {"module": "a"}

    agree(comm, setup)
    return int(all_reduce(comm))


def raises_while_running(comm: MpiCommunicator) -> int:
    if comm.rank == 1:
        raise RunError("fusion.7: out of memory")
    return int(all_reduce(comm))


def has_a_defect(comm: MpiCommunicator) -> int:
    if comm.rank == 1:
        raise KeyError("no such thing")
    return int(all_reduce(comm))


def stalls(comm: MpiCommunicator) -> int:
    if comm.rank == 1:
        comm.note("computes dot.7")
        time.sleep(300)
    return int(all_reduce(comm))


def stalls_later(comm: MpiCommunicator) -> int:
    """Stall like ``stalls``, but in a collective that the ranks have bound together."""
    all_reduce(comm)
    return int(all_reduce(comm, stalled_rank=1))


def stalls_before_agreeing(comm: MpiCommunicator) -> int:
    if comm.rank == 1:
        time.sleep(300)
    return agree(comm, lambda: (0, {"module": "a"}))


def on_two_nodes(comm: MpiCommunicator) -> int:
    """Sum over ranks that share no memory, since each one has been told another node's identity."""
    value = np.zeros(1)
    group = AllReduce(tuple(range(comm.size)), ReductionKind.SUM)
    bound = comm.bind(group, "all-reduce.3", [value], [value])
    comm.connect()
    assert isinstance(bound, NativeCollective)
    assert bound.needs_progress
    return int(all_reduce(comm)) - comm.size


def stalls_on_two_nodes(comm: MpiCommunicator) -> int:
    return stalls_later(comm)


def opens_its_row_late(comm: MpiCommunicator) -> int:
    """Sum while the other rank cannot see yet how this one gets on, and has to wait longer than elsewhere."""
    return int(all_reduce(comm)) - comm.size


def is_killed(comm: MpiCommunicator) -> int:
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(all_reduce(comm))


class LateBoard(StatusTable):
    def __init__(self, rank: int, rows: Mapping[int, Array]) -> None:
        time.sleep(2.0)
        super().__init__(rank, rows)


def main() -> int:
    world = world_of_environment()
    assert world is not None
    if sys.argv[1].endswith("on_two_nodes"):
        os.environ["SPMD_NODE_ID"] = f"node {world[0]}"
    if sys.argv[1] == "opens_its_row_late" and world[0] == 1:
        communicator.StatusTable = LateBoard  # type: ignore[misc]
    timeout = float(sys.argv[2]) if len(sys.argv) > 2 else 600.0
    return run_rank(open_world(world[1], timeout), globals()[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
