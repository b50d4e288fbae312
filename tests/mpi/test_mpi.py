"""The MPI communicator under mpirun: the same scenarios, bit for bit, as loopback passes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from bound_collectives import InAllocatedMemory, InMemoryOfTheGroup
from collective_scenarios import SCENARIOS

from collectives.communicator.actions.array_actions import Exchange
from collectives.communicator.actions.engine import RunStatus
from collectives.communicator.interface import Communicator
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.messages.native_message_actions import native_program
from collectives.communicator.native_collective import NativeCollective
from collectives.communicator.node.shared_window import Directory
from runtime.cpu.collective.collective_engine import native_collective_engine
from spmd.device import ReductionKind

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "all_reduce_of_every_type"])
def test_scenario_over_shared_memory(name: str, comm: Communicator) -> None:
    """All types would mean a hundred kernels on every rank: tests/collectives/communicator has them."""
    SCENARIOS[name](comm)
    comm.barrier()


@pytest.mark.parametrize(
    "name",
    [
        "all_gather_over_its_tile",
        "reduce_scatter_over_its_part",
        "all_reduce_in_place",
        "all_to_all_in_place",
        "permute_in_place",
        "one_memory_for_many_results",
        "several_in_flight_on_overlapping_groups",
        "awaited_in_another_order_by_each_rank",
    ],
)
def test_scenario_in_allocated_memory(name: str, comm: Communicator) -> None:
    SCENARIOS[name](InAllocatedMemory(comm))
    comm.barrier()


@pytest.mark.parametrize(
    "name",
    [
        "all_reduce_of_every_grouping",
        "all_gather_along_each_dimension",
        "broadcast_from_the_first_of_each_group",
    ],
)
def test_scenario_with_results_in_memory_of_the_group(name: str, comm: Communicator) -> None:
    SCENARIOS[name](InMemoryOfTheGroup(comm))
    comm.barrier()


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_by_messages(name: str, message_comm: Communicator) -> None:
    SCENARIOS[name](message_comm)
    message_comm.barrier()


def test_ranks_of_two_nodes() -> None:
    """Groups within a node share memory; messages carry the others, in two levels where there are two."""
    from mpi4py import MPI

    from collectives.communicator.mpi.communicator import MpiCommunicator

    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    comm = MpiCommunicator(
        timeout_seconds=60, engine=native_collective_engine(), node_id=f"node {rank // 2}"
    )
    bound = {}
    value = np.zeros(4, np.float32)
    pair = (rank - rank % 2, min(rank - rank % 2 + 1, size - 1))
    for name, group in (("node", pair), ("world", tuple(range(size)))):
        bound[name] = comm.bind(AllReduce(group, ReductionKind.SUM), name, [value], [value])
    comm.connect()
    for name, needs_progress in (("node", False), ("world", size > 2)):
        collective = bound[name]
        assert isinstance(collective, NativeCollective)
        assert collective.needs_progress == needs_progress
    comm.close()


def test_messages_carry_all_where_memory_cannot_be_shared() -> None:
    from mpi4py import MPI

    from collectives.communicator.mpi.communicator import MpiCommunicator

    notes: list[str] = []
    comm = MpiCommunicator(
        timeout_seconds=60,
        engine=native_collective_engine(),
        memory_providers=[Directory("/nowhere")],
        notify=notes.append,
    )
    SCENARIOS["all_reduce_in_place"](InAllocatedMemory(comm))
    comm.close()
    assert len(notes) == (1 if MPI.COMM_WORLD.rank == 0 else 0)
    assert all(
        note.startswith("collectives use MPI messages instead of shared memory: no shared memory")
        for note in notes
    )


def test_messages_come_where_they_belong_in_whatever_order_they_are_started(comm: Any) -> None:
    """MPI_Startall may take its requests in any: here what is sent the last first."""
    from mpi4py import MPI

    from collectives.communicator.mpi.messages import GroupLink

    first, second = np.arange(5.0), np.arange(5.0) + 10
    sent, received = [first, second], [np.zeros(5), np.zeros(5)]
    channel = GroupLink(MPI.COMM_SELF, (comm.rank,)).channel(2)
    exchange = Exchange(tuple((0, one) for one in sent), tuple((0, one) for one in received))
    messages = channel.prepare(exchange)
    size = messages.count * MPI._sizeof(MPI.Request)
    memory = (ctypes.c_uint8 * size).from_address(messages.requests)
    handles = np.frombuffer(memory, np.uint8).reshape(messages.count, -1)
    handles[2:] = handles[:1:-1].copy()
    (steps,) = native_collective_engine().load([native_program([exchange], lambda _: messages)])
    outcome = steps.start()
    while outcome == RunStatus.BLOCKED:
        outcome = steps.advancing(0)()
    assert outcome == RunStatus.COMPLETE
    assert [one.tolist() for one in received] == [one.tolist() for one in sent]
