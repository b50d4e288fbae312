"""Latency of this project's MPI collectives beside MPI's own, in one run.

python -m launch.mpirun -n 2 -- benchmarks/mpi_collectives.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from collectives.communicator.kinds import AllGather, AllReduce, AllToAll, Collective
from collectives.communicator.mpi import MpiCommunicator
from spmd.device import ReductionKind


def median_us(call: Callable[[], object], repeat: int) -> float:
    """Median over ``repeat`` calls of the slowest rank's time, in microseconds."""
    times = np.empty(repeat)
    for i in range(repeat):
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        call()
        times[i] = time.perf_counter() - start
    slowest = np.empty_like(times)
    MPI.COMM_WORLD.Allreduce(times, slowest, MPI.MAX)
    return float(np.median(slowest)) * 1e6


def main() -> None:
    comm = MpiCommunicator()
    world = MPI.COMM_WORLD
    everyone = tuple(range(comm.size))
    if comm.rank == 0:
        print(f"{comm.size} ranks, us: this project / MPI's blocking call")
        print(f"{'bytes':>10} {'all-reduce':>20} {'all-gather':>20} {'all-to-all':>20}")
    for size in (8, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 24):
        repeat = 200 if size <= 1 << 17 else 20
        operand = np.ones(max(size // 4, comm.size), np.float32)
        reduced, exchanged = np.empty_like(operand), np.empty_like(operand)
        gathered = np.empty(operand.size * comm.size, np.float32)
        cases: list[tuple[Collective, np.ndarray, Callable[[], object]]] = [
            (
                AllReduce(everyone, ReductionKind.SUM),
                reduced,
                lambda o=operand, r=reduced: world.Allreduce(o, r),
            ),
            (AllGather(everyone, 0), gathered, lambda o=operand, r=gathered: world.Allgather(o, r)),
            (AllToAll(everyone, 0), exchanged, lambda o=operand, r=exchanged: world.Alltoall(o, r)),
        ]
        row = []
        for collective, result, peer in cases:
            bound = comm.bind(collective, "bench", [operand], [result])
            comm.connect()
            ours = median_us(lambda b=bound: (b.start(), b.wait()), repeat)
            row.append(f"{ours:9.1f} /{median_us(peer, repeat):9.1f}")
        if comm.rank == 0:
            print(f"{operand.nbytes:>10} " + " ".join(f"{cell:>20}" for cell in row))
    comm.close()


main()
