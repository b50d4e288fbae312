"""Reductions: of every type, of every grouping, in place, of many operands, scattered."""

from __future__ import annotations

import numpy as np
from bound_collectives import run_collective
from collective_definition import (
    DTYPES,
    dtype_of,
    make,
    operations_for,
    part,
    reduced,
)

from collective_scenarios.scenario import assert_bits, groupings, own, scenario
from collectives.communicator.interface import BoundCollective, Communicator
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from spmd.device import ReductionKind


@scenario
def all_reduce_of_every_type(comm: Communicator) -> None:
    """Reduce arrays of every type: of three shapes on one and two ranks, and of one shape on more, where the sums have
    more terms but the shapes change nothing."""
    everyone = tuple(range(comm.size))
    shapes: tuple[tuple[int, ...], ...] = ((), (7,), (3, 5)) if comm.size <= 2 else ((3, 5),)
    runs: list[tuple[BoundCollective, np.ndarray, np.ndarray]] = []
    for name in DTYPES:
        dtype = dtype_of(name)
        for shape in shapes:
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
def reduce_scatter_over_its_part(comm: Communicator) -> None:
    """The result is this member's part of the operand; small, and large."""
    for groups in groupings(comm.size):
        group = own(groups, comm.rank)
        index, count = group.index(comm.rank), len(group)
        for rows in (16, 6_000):
            values = [make(rank, (rows * count, 4), np.dtype(np.float32)) for rank in group]
            memory = comm.allocate(16 * rows * count)
            operand = memory.view(np.float32).reshape(count * rows, 4)
            result = np.split(operand, count)[index]
            collective = ReduceScatter(group, ReductionKind.SUM, 0)
            bound = comm.bind(collective, f"part.{rows}", [operand], [result])
            comm.connect()
            for _ in range(3):
                np.copyto(operand, values[index])
                bound.start()
                bound.wait()
                assert_bits(result, part(reduced(values, "sum"), index, count, 0))


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
