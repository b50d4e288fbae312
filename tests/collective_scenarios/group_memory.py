"""Memory that a group holds together."""

from __future__ import annotations

import time

import numpy as np
from collective_definition import (
    make,
    reduced,
)

from collective_scenarios.scenario import assert_bits, groupings, own, scenario
from collectives.communicator.interface import Communicator
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from spmd.device import ReductionKind


@scenario
def memory_of_a_group_is_one(comm: Communicator) -> None:
    """An array gathered into a group's memory is complete for each member, run after run; each group has its own."""
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        memory = comm.allocate_shared(len(group) * 800, group)
        assert memory.nbytes == len(group) * 800
        assert memory.ctypes.data % 64 == 0
        assert not memory.any()
        comm.barrier()
        result = memory.view(np.float64)
        mine = np.zeros(100)
        bound = comm.bind(AllGather(group, 0), "shared", [mine], [result])
        comm.connect()
        for run in range(5):
            mine[:] = 10 * run + comm.rank
            bound.start()
            bound.wait()
            assert_bits(result, np.repeat([10.0 * run + rank for rank in group], 100))


@scenario
def one_memory_for_many_results(comm: Communicator) -> None:
    """Collectives of several kinds write to it in turn; nobody may be ahead of who still reads what it held."""
    everyone = tuple(range(comm.size))
    count = comm.size
    for elements in (count, 400 * count):
        memory = comm.allocate_shared(elements * 8, everyone).view(np.float64)
        mine = comm.allocate(elements * 8).view(np.float64)
        tile = comm.allocate(elements // count * 8).view(np.float64)
        kinds = (ReductionKind.SUM, ReductionKind.MAX)
        bound = [
            *(comm.bind(AllReduce(everyone, kind), kind.value, [mine], [memory]) for kind in kinds),
            comm.bind(AllGather(everyone, 0), "gather", [tile], [memory]),
            comm.bind(CollectiveBroadcast(everyone), "broadcast", [mine], [memory]),
            comm.bind(AllReduce(everyone, kinds[0]), "over its operand", [memory], [memory]),
        ]
        comm.connect()
        rng = np.random.default_rng(comm.rank)
        for run in range(6):
            values = [make(rank, (elements,), np.dtype(np.float64), seed=run) for rank in everyone]
            tiles = np.split(values[run % count], count)
            mine[:], tile[:] = values[comm.rank], tiles[comm.rank]
            wants = [
                *(reduced(values, kind.value) for kind in kinds),
                np.concatenate(tiles),
                values[0],
                reduced([values[0]] * count, "sum"),
            ]
            for one, want in zip(bound, wants, strict=True):
                one.start()
                one.wait()
                time.sleep(rng.choice((0, 0, 0.0005)))  # some are ahead
                assert_bits(memory, want)
