"""What every communicator must do, as programs that each rank runs; they raise AssertionError on a wrong result.

Each scenario takes a communicator and looks only at its rank, so the same code runs on threads and under mpirun.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from bound_collectives import run_collective
from collective_definition import (
    DTYPES,
    all_gathered,
    dtype_of,
    exchanged,
    make,
    operations_for,
    part,
    permuted,
    reduced,
)

from collectives.communicator.interface import BoundCollective, Communicator
from collectives.communicator.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectiveBroadcast,
    CollectivePermute,
    RaggedAllToAll,
    ReduceScatter,
)
from spmd.device import ReductionKind
from spmd.errors import RunError

Scenario = Callable[[Communicator], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def groupings(size: int) -> list[list[tuple[int, ...]]]:
    """Partitions of the ranks into groups: all, halves, interleaved, reversed, unequal, each alone."""
    ranks = tuple(range(size))
    forms = [
        [ranks],
        [ranks[: size // 2], ranks[size // 2 :]],
        [ranks[0::2], ranks[1::2]],
        [ranks[::-1]],
        [ranks[:1], ranks[1:]],
        [(rank,) for rank in ranks],
    ]
    return [[group for group in form if group] for form in forms]


def own(groups: list[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    return next(group for group in groups if rank in group)


def assert_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bit for bit; the dtype and the shape too."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == np.ascontiguousarray(want).tobytes(), f"got {got}, want {want}"


@scenario
def all_reduce_of_every_type(comm: Communicator) -> None:
    everyone = tuple(range(comm.size))
    runs: list[tuple[BoundCollective, np.ndarray, np.ndarray]] = []
    for name in DTYPES:
        dtype = dtype_of(name)
        for shape in ((), (7,), (3, 5)):
            values = [make(rank, shape, dtype) for rank in everyone]
            for operation in operations_for(name):
                result = np.empty(shape, dtype)
                collective = AllReduce(everyone, ReductionKind(operation))
                label = f"{name}.{operation}"
                bound = comm.bind(collective, label, [values[comm.rank]], [result])
                runs.append((bound, result, reduced(values, operation)))
    comm.connect()
    for bound, result, want in runs:
        bound.start()
        bound.wait()
        assert_bits(result, want)


@scenario
def all_reduce_of_every_grouping(comm: Communicator) -> None:
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        for elements in (1, 3, 4099, 70_001):
            values = [make(rank, (elements,), np.dtype(np.float32)) for rank in group]
            result = np.empty(elements, np.float32)
            mine = values[group.index(comm.rank)]
            run_collective(comm, AllReduce(group, ReductionKind.SUM), "ar", [mine], [result])
            assert_bits(result, reduced(values, "sum"))


@scenario
def all_reduce_in_place(comm: Communicator) -> None:
    everyone = tuple(range(comm.size))
    for elements in (5, 50_000):
        values = [make(rank, (elements,), np.dtype(np.float64)) for rank in everyone]
        buffer = values[comm.rank].copy()
        run_collective(comm, AllReduce(everyone, ReductionKind.SUM), "in_place", [buffer], [buffer])
        assert_bits(buffer, reduced(values, "sum"))


@scenario
def all_reduce_of_many_operands(comm: Communicator) -> None:
    """A combined all-reduce: several types and sizes, an empty one too."""
    everyone = tuple(range(comm.size))
    forms = [
        ((4,), "float32"),
        ((), "float32"),
        ((3, 2), "bfloat16"),
        ((0, 5), "float32"),
        ((9,), "int32"),
    ]
    operands = [[make(rank, shape, dtype_of(name)) for shape, name in forms] for rank in everyone]
    results = [np.empty_like(operand) for operand in operands[comm.rank]]
    run_collective(
        comm, AllReduce(everyone, ReductionKind.SUM), "combined", operands[comm.rank], results
    )
    for k, result in enumerate(results):
        assert_bits(result, reduced([member[k] for member in operands], "sum"))


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
def reduce_scatter_along_each_dimension(comm: Communicator) -> None:
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        index, count = group.index(comm.rank), len(group)
        for name in ("float32", "bfloat16", "int32"):
            for dimension in range(2):
                values = [make(rank, (count * 2, count * 3), dtype_of(name)) for rank in group]
                want = part(reduced(values, "sum"), index, count, dimension)
                result = np.empty(want.shape, want.dtype)
                collective = ReduceScatter(group, ReductionKind.SUM, dimension)
                run_collective(comm, collective, f"{name}.{dimension}", [values[index]], [result])
                assert_bits(result, want)


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
    pairs = tuple((rank, (rank + 1) % comm.size) for rank in range(comm.size))
    values = [make(rank, (30_000,), np.dtype(np.float32)) for rank in range(comm.size)]
    buffer = values[comm.rank].copy()
    run_collective(comm, CollectivePermute.among(pairs, comm.rank), "cp", [buffer], [buffer])
    assert_bits(buffer, permuted(values, pairs, comm.rank))


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
def memory_of_a_group_is_one(comm: Communicator) -> None:
    """What is gathered there is complete for each member, run after run, and each group has its own."""
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
    mine = bytes([comm.rank]) * (comm.rank * 3)
    want = [bytes([rank]) * (rank * 3) for rank in range(comm.size)]
    assert comm.all_gather_bytes(mine) == want
    last = comm.size - 1
    assert comm.gather_bytes(mine, root=last) == (want if comm.rank == last else None)
    assert comm.broadcast_bytes(mine if comm.rank == last else None, root=last) == want[last]
    comm.barrier()
