"""All-gather, all-to-all, permutes and broadcasts: bytes move, nothing is computed."""

from __future__ import annotations

import numpy as np
from bound_collectives import run_collective
from collective_definition import (
    all_gathered,
    dtype_of,
    exchanged,
    make,
    permuted,
)

from collective_scenarios.scenario import assert_bits, groupings, own, scenario
from collectives.communicator.interface import Communicator
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.ragged_all_to_all import RaggedAllToAll


@scenario
def all_gather_along_each_dimension(comm: Communicator) -> None:
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        for name in ("float32", "bfloat16", "bool", "complex64"):
            for dimension in range(3):
                values = [make(rank, (2, 3, 4), dtype_of(name)) for rank in group]
                want = all_gathered(values, dimension)
                result = np.empty(want.shape, want.dtype)
                mine = values[group.index(comm.rank)]
                run_collective(
                    comm, AllGather(group, dimension), f"{name}.{dimension}", [mine], [result]
                )
                assert_bits(result, want)


@scenario
def all_gather_over_its_tile(comm: Communicator) -> None:
    """The operand is this member's part of the result; small, and large."""
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        index, count = group.index(comm.rank), len(group)
        for rows in (16, 6_000):
            values = [make(rank, (rows, 4), np.dtype(np.float32)) for rank in group]
            memory = comm.allocate(16 * rows * count)
            result = memory.view(np.float32).reshape(count * rows, 4)
            operand = np.split(result, count)[index]
            np.copyto(operand, values[index])
            bound = comm.bind(AllGather(group, 0), f"tile.{rows}", [operand], [result])
            comm.connect()
            for _ in range(3):
                bound.start()
                bound.wait()
                assert_bits(result, np.concatenate(values))


@scenario
def all_to_all_along_each_dimension(comm: Communicator) -> None:
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        index, count = group.index(comm.rank), len(group)
        for name in ("float32", "bfloat16", "bool"):
            for dimension in range(3):
                shape = tuple(count * n if d == dimension else n for d, n in enumerate((2, 3, 4)))
                values = [make(rank, shape, dtype_of(name)) for rank in group]
                result = np.empty(shape, dtype_of(name))
                run_collective(
                    comm,
                    AllToAll(group, dimension),
                    f"{name}.{dimension}",
                    [values[index]],
                    [result],
                )
                assert_bits(result, exchanged(values, index, dimension))


@scenario
def all_to_all_of_a_tuple(comm: Communicator) -> None:
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        parts = [
            [make(rank, (2, 3), np.dtype(np.int32), seed=j) for j in range(len(group))]
            for rank in group
        ]
        index = group.index(comm.rank)
        results = [np.empty((2, 3), np.int32) for _ in group]
        run_collective(comm, AllToAll(group, None), "tuple", parts[index], results)
        for member, result in zip(parts, results, strict=True):
            assert_bits(result, member[index])


@scenario
def all_to_all_in_place(comm: Communicator) -> None:
    """Rows long and short, and a tuple."""
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        index, count = group.index(comm.rank), len(group)
        for shape, dimension in (
            ((5 * count, 3), 0),
            ((2, 3, 5 * count), 2),
            ((3, 300 * count, 5), 1),
        ):
            values = [make(rank, shape, np.dtype(np.float32)) for rank in group]
            buffer = values[index].copy()
            bound = comm.bind(AllToAll(group, dimension), "in place", [buffer], [buffer])
            comm.connect()
            for _ in range(3):
                bound.start()
                bound.wait()
                values = [exchanged(values, i, dimension) for i in range(count)]
                assert_bits(buffer, values[index])
        parts = [[make(rank, (700,), np.dtype(np.int32), seed=j) for j in group] for rank in group]
        buffers = [part.copy() for part in parts[index]]
        run_collective(comm, AllToAll(group, None), "tuple", buffers, buffers)
        for member, buffer in zip(parts, buffers, strict=True):
            assert_bits(buffer, member[index])


@scenario
def permute_by_several_pair_lists(comm: Communicator) -> None:
    size = comm.size
    lists: list[tuple[tuple[int, int], ...]] = [
        tuple((rank, (rank + 1) % size) for rank in range(size)),  # a ring
        tuple((rank, rank + 1) for rank in range(size - 1)),  # a shift: rank 0 receives zeros
        tuple((rank, rank) for rank in range(size)),  # everyone to itself
        ((0, size - 1), (size - 1, 0)),  # two ranks swap, the rest receive zeros
        ((0, size - 1),),
        (),
        tuple((0, rank) for rank in range(1, size)),  # one source, several targets
    ]
    for number, pairs in enumerate(lists):
        for name in ("float32", "bfloat16", "bool"):
            values = [make(rank, (3, 4), dtype_of(name)) for rank in range(size)]
            result = np.full((3, 4), 1).astype(dtype_of(name))
            collective = CollectivePermute.among(pairs, comm.rank)
            run_collective(comm, collective, f"cp.{number}.{name}", [values[comm.rank]], [result])
            assert_bits(result, permuted(values, pairs, comm.rank))


@scenario
def permute_in_place(comm: Communicator) -> None:
    size = comm.size
    lists: list[tuple[tuple[int, int], ...]] = [
        tuple((rank, (rank + 1) % size) for rank in range(size)),
        tuple((rank, rank - 1) for rank in range(1, size)),
        tuple((rank, rank ^ 1) for rank in range(size // 2 * 2)),
        tuple((0, rank) for rank in range(size)),
    ]
    for number, pairs in enumerate(lists):
        for elements in (50, 30_001):
            values = [make(rank, (elements,), np.dtype(np.float32)) for rank in range(size)]
            buffer = values[comm.rank].copy()
            collective = CollectivePermute.among(pairs, comm.rank)
            bound = comm.bind(collective, f"cp.{number}", [buffer], [buffer])
            comm.connect()
            for _ in range(3):
                bound.start()
                bound.wait()
                values = [permuted(values, pairs, rank) for rank in range(size)]
                assert_bits(buffer, values[comm.rank])


@scenario
def broadcast_from_the_first_of_each_group(comm: Communicator) -> None:
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        values = [
            [make(rank, (5,), dtype_of(name)) for name in ("bfloat16", "bool")] for rank in group
        ]
        results = [np.empty_like(value) for value in values[0]]
        run_collective(
            comm, CollectiveBroadcast(group), "cb", values[group.index(comm.rank)], results
        )
        for value, result in zip(values[0], results, strict=True):
            assert_bits(result, value)


@scenario
def ragged_all_to_all(comm: Communicator) -> None:
    """Member i sends i + j + 1 rows to member j, who lays sources one after the other; the rest stays as it was."""
    group = tuple(range(comm.size))
    count = comm.size
    sizes = np.array([[i + j + 1 for j in group] for i in group])
    rows = int(sizes.sum(axis=1).max()) + 2
    inputs = [make(rank, (rows, 3), np.dtype(np.float32)) for rank in group]
    starts = np.cumsum(sizes, axis=1) - sizes
    places = np.cumsum(sizes, axis=0) - sizes
    me = comm.rank
    output = np.full((rows, 3), -1, np.float32)
    tables = [starts[me], sizes[me], places[me], sizes[:, me]]
    operands = [
        inputs[me],
        output,
        *(np.ascontiguousarray(table, dtype=np.int32) for table in tables),
    ]
    result = np.empty((rows, 3), np.float32)
    run_collective(comm, RaggedAllToAll(group), "ragged", operands, [result])
    want = output.copy()
    for i in range(count):
        place, start, n = places[i, me], starts[i, me], sizes[i, me]
        want[place : place + n] = inputs[i][start : start + n]
    assert_bits(result, want)
