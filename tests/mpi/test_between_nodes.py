"""Every kind of collective between nodes at once: native steps, by messages, run after run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest
from collective_definition import dtype_of, make

from collectives.communicator.interface import BoundCollective, Communicator
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from collectives.communicator.native_collective import NativeCollective
from spmd.device import ReductionKind

pytestmark = pytest.mark.mpi(min_size=3)

RUNS = 3
SIZES = (1, 77, 20_000)
"""Elements for each member: what goes in one round, of sizes that do not divide, and large."""


def every_kind(size: int) -> Iterator[tuple[Collective, list[int], list[int]]]:
    """Yield collectives of every kind, with the sizes of their operands and results."""
    everyone = tuple(range(size))
    ring = tuple((rank, (rank + 1) % size) for rank in everyone)
    ends = tuple((rank, rank + 1) for rank in everyone[:-1])
    for n in SIZES:
        yield AllReduce(everyone, ReductionKind.SUM), [n, n + 2], [n, n + 2]
        yield AllReduce(everyone[::-1], ReductionKind.MAX), [n], [n]
        yield ReduceScatter(everyone, ReductionKind.SUM, 0), [n * size, size], [n, 1]
        yield AllGather(everyone, 0), [n, 1], [n * size, size]
        yield AllToAll(everyone, 0), [n * size, size], [n * size, size]
        yield AllToAll(everyone, None), [n] * size, [n] * size
        yield CollectiveBroadcast(everyone[::-1]), [n, 1], [n, 1]
        yield CollectivePermute(everyone, ring), [n, 1], [n, 1]
        yield CollectivePermute(everyone, ends), [n, 1], [n, 1]


def operands_of(sizes: Sequence[int], rank: int, run: int, dtype: np.dtype) -> list[np.ndarray]:
    return [_made(rank, size, dtype, 10 * run + k) for k, size in enumerate(sizes)]


@cache
def _made(rank: int, size: int, dtype: np.dtype, seed: int) -> np.ndarray:
    """Return the array, which is nobody's to change: other collectives have operands of the same size."""
    array = make(rank, (size,), dtype, seed=seed)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64", "int8", "complex64", "bool"])
def test_all_kinds_in_flight_at_once(name: str, spread_comm: Communicator) -> None:
    """Ranks wait for them in an order of their own; all are started again with other values."""
    comm, dtype = spread_comm, dtype_of(name)
    kinds = [
        one
        for one in every_kind(comm.size)
        if not (dtype.kind == "c" and getattr(one[0], "reduction", None) is ReductionKind.MAX)
    ]
    buffers = []
    bound: list[BoundCollective] = []
    for number, (collective, operands, results) in enumerate(kinds):
        own = [np.empty(size, dtype) for size in operands]
        out = [np.empty(size, dtype) for size in results]
        buffers.append((own, out))
        bound.append(comm.bind(collective, f"{collective.kind}.{number}", own, out))
    comm.connect()
    assert all(isinstance(one, NativeCollective) and one.needs_progress for one in bound)
    order = np.random.default_rng(comm.rank).permutation(len(bound))
    for run in range(RUNS):
        for (_, sizes, _), (own, _) in zip(kinds, buffers, strict=True):
            for array, value in zip(own, operands_of(sizes, comm.rank, run, dtype), strict=True):
                array[:] = value
        for one in bound:
            one.start()
        for number in order:
            bound[number].wait()
        for (collective, sizes, _), (_, out) in zip(kinds, buffers, strict=True):
            group = collective.group
            combined = collective.combine([operands_of(sizes, r, run, dtype) for r in group])
            want = [np.empty_like(one) for one in out]
            collective.deliver(combined, group.index(comm.rank), want)
            assert [one.tobytes() for one in out] == [one.tobytes() for one in want], collective
    comm.barrier()
