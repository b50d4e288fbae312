"""Creation of the communicator of an MPI job's ranks, by the environment that the launcher sets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from launch.ranks.messages import report_error, report_note
from launch.ranks.rank_environment import (
    NODE_ID_VARIABLE,
    binds_ranks_of_environment,
    world_of_environment,
)
from launch.ranks.shutdown import end_by_alarm, tell_peers_of_the_end
from launch.ranks.startup import begin_start
from runtime.cpu.collective.collective_engine import native_collective_engine
from spmd.errors import RunError

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator


def open_world(started_ranks: int, timeout_seconds: float) -> MpiCommunicator:
    """Start MPI, and return the communicator of all ``started_ranks`` ranks that the launcher started.

    Ranks of one node share memory. The environment variable SPMD_NODE_ID, one value per node, distinguishes nodes with
    the same host name (two namespaces of one host). From here on this process ends with the launcher, even if the
    launcher is killed, and notifies its peers when it ends.

    timeout_seconds: longest wait for a rank that makes no progress.
    Raises RunError if mpi4py or its MPI library is missing, or is another MPI than the launcher's.
    """
    rank = (world_of_environment() or (0, 1))[0]
    start = begin_start(rank, started_ranks)
    start.watchdog.limit(timeout_seconds)
    start.watchdog.joins()
    if start.note:
        report_note(start.note)
    try:
        from collectives.communicator.mpi.communicator import MpiCommunicator, end_all_ranks
    except (ImportError, RuntimeError) as error:
        raise RunError(
            f"started by an MPI launcher, but mpi4py cannot be used: {error}\n"
            'pip install "spmd-executor[mpi]" brings mpi4py and an MPI library'
        ) from error
    try:
        world = MpiCommunicator(
            timeout_seconds=timeout_seconds,
            engine=native_collective_engine(),
            node_id=os.environ.get(NODE_ID_VARIABLE),
            notify=report_note,
            binds_ranks=binds_ranks_of_environment(),
        )
    except Exception as error:
        # A normal exit would wait in MPI_Finalize for the other ranks, which wait for this one in MPI_Init.
        report_error(f"[rank {rank}/{started_ranks}] {error}")
        end_by_alarm()
        end_all_ranks(RunError.exit_code)
        raise
    if world.size != started_ranks:
        raise RunError(
            f"the launcher started {started_ranks} ranks, but this rank's MPI library sees {world.size}: "
            "mpirun and the library that mpi4py loads are different MPIs"
        )
    start.done()
    tell_peers_of_the_end(world)
    return world
