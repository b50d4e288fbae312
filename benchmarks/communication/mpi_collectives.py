"""Time collectives beside MPI's own, with the same ranks, buffers and sizes, in one run.

python -m launch.mpirun -n 2 -- -m benchmarks.communication.mpi_collectives [--messages] [--priority] [--kinds
all-reduce,all-gather]
    [--dtype bf16] [--json FILE]

Both use the ranks' shared memory; with --messages ours sends messages, as between nodes. Each form is one that compiled
programs use: *in place* means that a result lies on its operand, *shared* that the members hold one result together.
MPI runs out of place and, where it can (with an own tile that lies in the result), in place; the ratio is to the
quicker one. Each must give the right result before it is timed. MPI moves bf16 as integers of that size; it cannot
reduce it.

Rounds of all alternate, and a figure is the median over rounds of the slowest rank's time per call. GB/s are the bytes
that a rank must at least read and write ("moved") divided by that time. The limit beside it is the rate of a plain copy
by all ranks at the same time, between arrays that together have as many bytes as the collective touches on a core, so
that the same caches hold them. On a machine that others use too, --priority keeps each rank on a core of its own at
real-time priority (the user must have the right to set it).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from mpi4py import MPI

from benchmarks.timing.collective_rounds import ROUND_SECONDS, rounds_of
from benchmarks.timing.turns import seconds
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from collectives.communicator.mpi.communicator import MpiCommunicator
from launch.report.environment import describe_environment
from runtime.cpu.collective.collective_engine import native_collective_engine
from spmd.device import ReductionKind

SIZES = tuple(1 << n for n in range(10, 27, 2))
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

Call = Callable[[], object]


@dataclass(frozen=True)
class Entry:
    """A way to run a collective, and the arrays that it reads and writes."""

    name: str
    run: Call
    operand: np.ndarray
    result: np.ndarray


@dataclass(frozen=True)
class Contest:
    """One collective in one form, by ours and by MPI.

    ``values`` is this rank's operand and ``want`` its result. ``read`` and ``written`` are the bytes that a rank must
    at least read and write. ``overwrites`` says that the result lies where the operand was.
    """

    form: str
    ours: Entry
    peers: tuple[Entry, ...]
    values: np.ndarray
    want: np.ndarray
    read: int
    written: int
    overwrites: bool = False

    @property
    def moved(self) -> int:
        return self.read + self.written

    @property
    def touched(self) -> int:
        """Bytes of memory that a rank reads or writes or both."""
        return self.read if self.overwrites else self.moved

    def verify(self) -> None:
        """Check that every entry gives the right result, and leave zeros in the operands, whose sums stay zero."""
        for entry in (self.ours, *self.peers):
            entry.operand[:] = self.values
            MPI.COMM_WORLD.Barrier()
            entry.run()
            right = np.array([np.array_equal(entry.result, self.want)])
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, right, MPI.LAND)
            if not right[0]:
                raise SystemExit(f"{self.form} of {self.want.nbytes} bytes, {entry.name}: wrong")
            entry.operand[:] = 0


def seconds_per_call(call: Call, repeat: int) -> float:
    """Return the slowest rank's seconds per call, over ``repeat`` calls in a row."""
    MPI.COMM_WORLD.Barrier()
    elapsed = np.array([seconds(call, repeat)])
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, elapsed, MPI.MAX)
    return float(elapsed[0])


def repeats(call: Call) -> int:
    """Return the number of calls that make a round of about ROUND_SECONDS; it is the same on every rank."""
    call()
    if seconds_per_call(call, 1) > ROUND_SECONDS:
        return 1
    quickest = min(seconds_per_call(call, 3) for _ in range(3))
    return max(1, min(1000, int(ROUND_SECONDS / quickest)))


def in_rounds(calls: list[Call], rounds: int) -> np.ndarray:
    """Return the seconds per call as an array [rounds, calls], measured in alternating rounds."""
    counts = [repeats(call) for call in calls]
    return np.array(
        [
            [seconds_per_call(call, count) for call, count in zip(calls, counts, strict=True)]
            for _ in range(rounds)
        ]
    )


class Arena:
    """Arrays of ``size`` bytes, of this rank and of all together, and the contests on them.

    Element i of rank r's operand is i % 31 + r, so that sums are exact.
    """

    def __init__(self, comm: MpiCommunicator, size: int, dtype: np.dtype) -> None:
        self.comm = comm
        self.size, self.count, self.rank = size, comm.size, comm.rank
        self.everyone = tuple(range(comm.size))
        self.operand, self.result = np.split(comm.allocate(2 * size).view(dtype), 2)
        self.shared = comm.allocate_shared(size, self.everyone).view(dtype)
        #: Whether MPI knows the type.
        self.is_known = dtype == np.float32
        self.part = self.operand.size // comm.size
        #: Bytes of one rank's part of an array.
        self.share = size // comm.size
        self.tile = self.result[: self.part]
        self.own_tile = self.result[self.rank * self.part :][: self.part]
        pattern = (np.arange(self.operand.size) % 31).astype(np.float32)
        self.pattern = pattern.astype(dtype)
        self.total = (self.count * pattern + sum(self.everyone)).astype(dtype)

    def contests(self, kind: str) -> Iterator[Contest]:
        return {
            "all-reduce": self.all_reduce,
            "all-gather": self.all_gather,
            "reduce-scatter": self.reduce_scatter,
            "all-to-all": self.all_to_all,
            "collective-permute": self.collective_permute,
        }[kind]()

    def all_reduce(self) -> Iterator[Contest]:
        world, operand, result = MPI.COMM_WORLD, self.operand, self.result
        kind = AllReduce(self.everyone, ReductionKind.SUM)
        peers = (
            Entry("MPI", lambda: world.Allreduce(operand, result), operand, result),
            Entry("MPI in place", lambda: world.Allreduce(MPI.IN_PLACE, operand), operand, operand),
        )
        peers = peers if self.is_known else ()
        values, want, size = self._values(self.pattern, self.rank), self.total, self.size
        ours = self._ours(kind, operand, operand)
        yield Contest("all-reduce, in place", ours, peers, values, want, size, size, True)
        ours = self._ours(kind, operand, self.shared)
        yield Contest("all-reduce, shared", ours, peers, values, want, size, self.share)

    def all_gather(self) -> Iterator[Contest]:
        world, result, own = MPI.COMM_WORLD, self.result, self.own_tile
        operand = self.operand[: self.part]
        kind = AllGather(self.everyone, 0)
        here, there = _words(operand), _words(result)
        peers = (
            Entry("MPI", lambda: world.Allgather(here, there), operand, result),
            Entry("MPI in place", lambda: world.Allgather(MPI.IN_PLACE, there), own, result),
        )
        values, want = self._everyones(self.pattern[: self.part])
        size, share = self.size, self.share
        ours = self._ours(kind, operand, result)
        yield Contest("all-gather", ours, peers, values, want, size, size)
        ours, others = self._ours(kind, own, result), size - share
        yield Contest("all-gather, in place", ours, peers, values, want, others, others)
        ours = self._ours(kind, operand, self.shared)
        yield Contest("all-gather, shared", ours, peers, values, want, share, share)

    def reduce_scatter(self) -> Iterator[Contest]:
        world, operand, tile = MPI.COMM_WORLD, self.operand, self.tile
        kind = ReduceScatter(self.everyone, ReductionKind.SUM, 0)
        ours = self._ours(kind, operand, tile)
        run = lambda: world.Reduce_scatter_block(operand, tile)  # noqa: E731
        want = np.split(self.total, self.count)[self.rank]
        size, share = self.size, self.share
        peers = (Entry("MPI", run, operand, tile),) if self.is_known else ()
        values = self._values(self.pattern, self.rank)
        yield Contest("reduce-scatter", ours, peers, values, want, size, share)
        there = np.split(operand, self.count)[self.rank]
        ours = self._ours(kind, operand, there)
        yield Contest("reduce-scatter, in place", ours, peers, values, want, size, share, True)

    def all_to_all(self) -> Iterator[Contest]:
        world, operand, result = MPI.COMM_WORLD, self.operand, self.result
        kind = AllToAll(self.everyone, 0)
        here, there = _words(operand), _words(result)
        peers = (
            Entry("MPI", lambda: world.Alltoall(here, there), operand, result),
            Entry("MPI in place", lambda: world.Alltoall(MPI.IN_PLACE, here), operand, operand),
        )
        _, want = self._everyones(np.split(self.pattern, self.count)[self.rank])
        values, size = self._values(self.pattern, self.rank), self.size
        ours = self._ours(kind, operand, result)
        yield Contest("all-to-all", ours, peers, values, want, size, size)
        ours, others = self._ours(kind, operand, operand), size - self.share
        yield Contest("all-to-all, in place", ours, peers, values, want, others, others, True)

    def collective_permute(self) -> Iterator[Contest]:
        """Yield contests in which each rank sends its operand to the next rank of a ring."""
        world, operand, result = MPI.COMM_WORLD, self.operand, self.result
        after, before = (self.rank + 1) % self.count, (self.rank - 1) % self.count
        pairs = tuple((i, (i + 1) % self.count) for i in self.everyone)
        kind = CollectivePermute.among(pairs, self.rank)
        here, there = _words(operand), _words(result)
        peers = (
            Entry(
                "MPI",
                lambda: world.Sendrecv(here, after, 0, there, before, 0),
                operand,
                result,
            ),
            Entry(
                "MPI in place",
                lambda: world.Sendrecv_replace(here, after, 0, before, 0),
                operand,
                operand,
            ),
        )
        values, want = (self._values(self.pattern, rank) for rank in (self.rank, before))
        ours, size = self._ours(kind, operand, result), self.size
        yield Contest("collective-permute", ours, peers, values, want, size, size)
        ours = self._ours(kind, operand, operand)
        yield Contest("collective-permute, in place", ours, peers, values, want, size, size, True)

    def _values(self, pattern: np.ndarray, rank: int) -> np.ndarray:
        """Return the values that ``rank`` holds of a pattern."""
        return (pattern.astype(np.float32) + rank).astype(pattern.dtype)

    def _everyones(self, pattern: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return this rank's values of a pattern, and those of all ranks one after the other."""
        return self._values(pattern, self.rank), np.concatenate(
            [self._values(pattern, rank) for rank in self.everyone]
        )

    def _ours(self, collective: Collective, source: np.ndarray, target: np.ndarray) -> Entry:
        bound = self.comm.bind(collective, collective.kind, [source], [target])
        self.comm.connect()
        return Entry("ours", bound.complete, source, target)


def _words(array: np.ndarray) -> np.ndarray:
    """Return the array itself, or as 16-bit integers where MPI does not have its type."""
    return array if array.dtype == np.float32 else array.view(np.uint16)


def copy_times(touched: int, rounds: int) -> np.ndarray:
    """Return [rounds] seconds per byte read or written, as all ranks copy half of ``touched`` bytes.

    Times are the slowest rank's, by the ranks' CPU clocks, since ranks that share a core copy one after the other.
    """
    source, target = np.split(np.ones(touched // 2 * 2, np.uint8), 2)
    count = repeats(lambda: np.copyto(target, source))
    found = np.zeros(rounds)
    for k in range(rounds):
        MPI.COMM_WORLD.Barrier()
        start = time.thread_time()
        for _ in range(count):
            np.copyto(target, source)
        found[k] = time.thread_time() - start
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
    return found / (count * 2 * source.size)


def _line(*cells: str) -> str:
    return f"{cells[0]:<22}" + "".join(f"{cell:>11}" for cell in cells[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", action="store_true", help="each rank on a node of its own")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--priority", action="store_true", help="real-time, one core for each rank")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of an operand")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="f32")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    comm = MpiCommunicator(
        engine=native_collective_engine(),
        node_id=f"node {MPI.COMM_WORLD.rank}" if options.messages else None,
        notify=lambda note: print(f"note: {note}"),
    )
    if comm.rank == 0:
        way = "messages" if options.messages else "shared memory"
        library = MPI.Get_library_version().splitlines()[0].partition(",")[0]
        print(f"{comm.size} ranks, {way} beside {library}; {describe_environment()}")
        times = "ours us", "MPI us", "in place", "ratio"
        print(_line("collective", "bytes", *times, "moved", "GB/s", "copy GB/s"))
    cores = sorted(os.sched_getaffinity(0))
    ranks_on_a_core = -(-comm.size // len(cores))
    if options.priority:
        os.sched_setaffinity(0, {cores[comm.rank % len(cores)]})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    rows = []
    for size in map(int, options.sizes.split(",")):
        copies: dict[int, np.ndarray] = {}
        arena = Arena(comm, size, DTYPES[options.dtype])
        for kind in options.kinds.split(","):
            for contest in arena.contests(kind):
                contest.verify()
                calls = [entry.run for entry in (contest.ours, *contest.peers)]
                rounds = rounds_of(size, options.rounds)
                times = in_rounds(calls, rounds)
                touched = contest.touched * ranks_on_a_core
                if touched not in copies:
                    copies[touched] = copy_times(touched, rounds)
                copy = ranks_on_a_core * copies[touched]
                ours, *peers = map(float, np.median(times, axis=0))
                moved, speed, limit = contest.moved, contest.moved / ours, 1 / np.median(copy)
                shown = [f"{ours * 1e6:.2f}", *(f"{peer * 1e6:.2f}" for peer in peers)]
                shown += ["-"] * (3 - len(shown))
                speeds = f"{speed / 1e9:.1f}", f"{limit / 1e9:.1f}"
                ratio = f"{min(peers) / ours:.2f}" if peers else "-"
                rows.append(
                    {"kind": kind, "form": contest.form, "bytes": size, "moved": moved}
                    | {"copy_gb_s": float(limit) / 1e9, "ours": ours, "peers": peers}
                    | {"least": times.min(axis=0).tolist(), "limit": moved * float(copy.min())}
                )
                if comm.rank == 0:
                    line = _line(contest.form, str(size), *shown, ratio, str(moved), *speeds)
                    print(line, flush=True)
    if options.json and comm.rank == 0:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    comm.close()


if __name__ == "__main__":
    main()
