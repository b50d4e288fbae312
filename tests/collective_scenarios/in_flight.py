"""Several collectives at a time, one of them again and again, starts that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from collective_definition import (
    make,
    reduced,
)

from collective_scenarios.scenario import assert_bits, own, scenario
from collectives.communicator.interface import Communicator
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.collective_permute import CollectivePermute
from spmd.device import ReductionKind
from spmd.errors import RunError


@scenario
def several_in_flight_on_overlapping_groups(comm: Communicator) -> None:
    """Rows and columns of a mesh at once, awaited in another order than started; polled where polling is offered."""
    size = comm.size
    rows = own([tuple(range(size))[: size // 2], tuple(range(size))[size // 2 :]], comm.rank)
    everyone = tuple(range(size))
    values = [make(rank, (1000,), np.dtype(np.float32)) for rank in everyone]
    first, second, third = (np.empty(1000, np.float32) for _ in range(3))
    mine = [values[comm.rank]]
    ring = CollectivePermute.among(tuple((r, (r + 1) % size) for r in everyone), comm.rank)
    one = comm.bind(AllReduce(rows, ReductionKind.SUM), "rows", mine, [first])
    two = comm.bind(AllReduce(everyone, ReductionKind.MAX), "all", mine, [second])
    three = comm.bind(ring, "ring", mine, [third])
    comm.connect()
    for bound in (one, two, three):
        bound.start()
    three.wait()
    one.test()
    two.wait()
    one.wait()
    assert one.test()
    assert_bits(first, reduced([values[rank] for rank in rows], "sum"))
    assert_bits(second, reduced(values, "max"))
    assert_bits(third, values[(comm.rank - 1) % size])


@scenario
def awaited_in_another_order_by_each_rank(comm: Communicator) -> None:
    """Whoever waits for one collective must still do its part in the other, or both wait for ever."""
    everyone = tuple(range(comm.size))
    values = [make(rank, (20_000,), np.dtype(np.float32)) for rank in everyone]
    results = [np.empty_like(values[0]) for _ in range(2)]
    kinds = (ReductionKind.SUM, ReductionKind.MAX)
    bound = [
        comm.bind(AllReduce(everyone, kind), kind.value, [values[comm.rank]], [result])
        for kind, result in zip(kinds, results, strict=True)
    ]
    comm.connect()
    for _ in range(3):
        for one in bound:
            one.start()
        for one in bound if comm.rank % 2 else bound[::-1]:
            one.wait()
    for kind, result in zip(kinds, results, strict=True):
        assert_bits(result, reduced(values, kind.value))


@scenario
def two_results_of_a_group_in_flight(comm: Communicator) -> None:
    """Halves of one memory, and rows of a mesh with memory of their own; awaited in another order by some."""
    size = comm.size
    everyone = tuple(range(size))
    row = own([everyone[: size // 2], everyone[size // 2 :]], comm.rank)
    memory = comm.allocate_shared(2 * 8000, everyone).view(np.float64)
    part = comm.allocate_shared(8000, row).view(np.float64)
    mine = np.zeros(1000)
    wanted = [
        (AllReduce(everyone, ReductionKind.SUM), "one", memory[:1000], everyone),
        (AllReduce(everyone, ReductionKind.MAX), "two", memory[1000:], everyone),
        (AllReduce(row, ReductionKind.SUM), "three", part, row),
    ]
    bound = [comm.bind(kind, name, [mine], [result]) for kind, name, result, _ in wanted]
    comm.connect()
    for run in range(5):
        mine[:] = make(comm.rank, (1000,), np.dtype(np.float64), seed=run)
        for one in bound:
            one.start()
        for one in bound if comm.rank % 2 else bound[::-1]:
            one.wait()
        for kind, _, result, group in wanted:
            values = [make(rank, (1000,), np.dtype(np.float64), seed=run) for rank in group]
            assert_bits(result, reduced(values, kind.reduction.value))


@scenario
def the_same_collective_again_and_again(comm: Communicator) -> None:
    everyone = tuple(range(comm.size))
    value = np.array([float(comm.rank + 1)], np.float32)
    bound = comm.bind(AllReduce(everyone, ReductionKind.MAX), "loop", [value], [value])
    comm.connect()
    for _ in range(50):
        bound.start()
        bound.wait()
        assert value[0] >= comm.size
        value += 1


@scenario
def a_second_start_before_the_first_is_over_is_refused(comm: Communicator) -> None:
    value = np.zeros(3, np.float32)
    everyone = tuple(range(comm.size))
    bound = comm.bind(AllReduce(everyone, ReductionKind.SUM), "twice", [value], [value])
    comm.connect()
    if comm.rank == 0:
        bound.start()
        if comm.size > 1:
            with pytest.raises(RunError, match="twice is started again"):
                bound.start()
    comm.barrier()
    if comm.rank != 0:
        bound.start()
    bound.wait()


@scenario
def bytes_of_different_lengths(comm: Communicator) -> None:
    want = [bytes([rank + 1]) * (3 * (comm.size - 1 - rank)) for rank in range(comm.size)]
    mine = want[comm.rank]
    assert comm.all_gather_bytes(mine) == want
    assert comm.gather_bytes(mine) == (want if comm.rank == 0 else None)
    assert comm.broadcast_bytes(mine) == want[0]
    comm.barrier()
