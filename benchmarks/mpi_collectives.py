"""Collectives of this project beside MPI's own, on the same memory and in one run.

python -m launch.mpirun -n 2 -- benchmarks/mpi_collectives.py [--messages] [--priority] [--kinds all-reduce,all-gather]

Both work on the ranks' shared memory; rounds of the two alternate, and a figure is the median over rounds of the
slowest rank's time per call. GB/s: bytes that a rank reads and writes at the least, divided by that time. The limit
beside it: the same for a plain copy of as many bytes, made by all ranks at the same time. On a machine that others use
too, --priority keeps each rank on a core of its own, before everyone else (needs the right to).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from collectives.communicator.kinds import AllGather, AllReduce, AllToAll, Collective, ReduceScatter
from collectives.communicator.mpi import MpiCommunicator
from launch.report.environment import describe_environment
from runtime.shared_memory_engine import native_step_engine
from spmd.device import ReductionKind

SIZES = tuple(1 << n for n in range(10, 27, 2))
ROUND_SECONDS = 0.01

Call = Callable[[], object]


@dataclass(frozen=True)
class Contest:
    """One collective, twice. ``traffic``: bytes that a rank reads and writes at the least."""

    kind: str
    ours: Call
    peer: Call
    traffic: int


def seconds_per_call(call: Call, repeat: int) -> float:
    """The slowest rank's, over ``repeat`` calls in a row."""
    MPI.COMM_WORLD.Barrier()
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    elapsed = np.array([(time.perf_counter() - start) / repeat])
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, elapsed, MPI.MAX)
    return float(elapsed[0])


def repeats(call: Call) -> int:
    """So many calls that one round takes some ROUND_SECONDS; the same on every rank."""
    call()
    quickest = min(seconds_per_call(call, 3) for _ in range(3))
    return max(1, min(1000, int(ROUND_SECONDS / quickest)))


def medians(calls: list[Call], rounds: int) -> list[float]:
    """Seconds per call of each, in alternating rounds."""
    counts = [repeats(call) for call in calls]
    times = [
        [seconds_per_call(call, count) for call, count in zip(calls, counts, strict=True)]
        for _ in range(rounds)
    ]
    return [float(value) for value in np.median(times, axis=0)]


def contests(comm: MpiCommunicator, size: int, kinds: list[str]) -> Iterator[Contest]:
    """Operands of ``size`` bytes; an all-gather's result has that many."""
    world, count = MPI.COMM_WORLD, comm.size
    everyone = tuple(range(count))
    memory = comm.allocate(2 * size).view(np.float32)
    memory[:] = 1
    operand, result = np.split(memory, 2)
    part = operand.size // count

    def ours(collective: Collective, source: np.ndarray, target: np.ndarray) -> Call:
        bound = comm.bind(collective, collective.kind, [source], [target])
        comm.connect()
        start, wait = bound.start, bound.wait

        def run() -> None:
            start()
            wait()

        return run

    add = ReductionKind.SUM
    for kind in kinds:
        if kind == "all-reduce":
            yield Contest(
                kind,
                ours(AllReduce(everyone, add), operand, operand),
                lambda: world.Allreduce(MPI.IN_PLACE, operand),
                2 * size,
            )
        elif kind == "all-gather":
            yield Contest(
                kind,
                ours(AllGather(everyone, 0), operand[:part], result),
                lambda: world.Allgather(operand[:part], result),
                2 * size,
            )
        elif kind == "reduce-scatter":
            yield Contest(
                kind,
                ours(ReduceScatter(everyone, add, 0), operand, result[:part]),
                lambda: world.Reduce_scatter_block(operand, result[:part]),
                size + size // count,
            )
        else:
            yield Contest(
                kind,
                ours(AllToAll(everyone, 0), operand, result),
                lambda: world.Alltoall(operand, result),
                2 * size,
            )


def copy_bandwidth(size: int, rounds: int) -> float:
    """Bytes read and written per second and rank, copying ``size`` bytes on all ranks at the same time."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    (seconds,) = medians([lambda: np.copyto(target, source)], rounds)
    return 2 * size / seconds


def _line(*cells: str) -> str:
    return f"{cells[0]:<15}" + "".join(f"{cell:>11}" for cell in cells[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", action="store_true", help="without shared memory")
    parser.add_argument("--kinds", default="all-reduce,all-gather,reduce-scatter,all-to-all")
    parser.add_argument("--priority", action="store_true", help="real-time, one core for each rank")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    engine = None if options.messages else native_step_engine()
    comm = MpiCommunicator(engine=engine, notify=lambda note: print(f"note: {note}"))
    if comm.rank == 0:
        way = "messages" if options.messages else "shared memory"
        library = MPI.Get_library_version().splitlines()[0].partition(",")[0]
        print(f"{comm.size} ranks, {way} beside {library}; {describe_environment()}")
        print(_line("collective", "bytes", "ours us", "MPI us", "ratio", "GB/s", "copy GB/s"))
    if options.priority:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[comm.rank % len(cores)]})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    for size in SIZES:
        limit = copy_bandwidth(size, options.rounds)
        for contest in contests(comm, size, options.kinds.split(",")):
            ours, peer = medians([contest.ours, contest.peer], options.rounds)
            speed = contest.traffic / ours
            times = f"{ours * 1e6:.2f}", f"{peer * 1e6:.2f}", f"{peer / ours:.2f}"
            speeds = f"{speed / 1e9:.1f}", f"{limit / 1e9:.1f}"
            if comm.rank == 0:
                print(_line(contest.kind, str(size), *times, *speeds), flush=True)
    comm.close()


if __name__ == "__main__":
    main()
