"""Calibration of the network between nodes: messages are timed alone, and concurrently with matrix products.

All ranks send at the same time, each to the rank with the same local rank on the next node, so a node's port carries
the messages of all its devices. The timed programs are compiled as any other program, so computation polls messages as
often as in any program.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from launch.calibration.joining import with_network
from launch.entry import Compiled
from launch.execution import time_steps
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.ranks.rank_executable import RankExecutable
from launch.ranks.shared_compile import compile_on_first
from runtime.arrays.sharded_arrays import ShardedArrays
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.machine.description import MachineDescription
from spmd.machine.exchange import Exchange
from spmd.machine.fit import nonnegative_fit
from spmd.text.parser import parse_module

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator

#: Approximate largest number of devices of the described machine, whose nodes have as many devices as those here.
MOST_DEVICES = 1 << 14
#: Number of products that are timed to choose the number of products in the concurrent runs.
_FEW = 4


@dataclass(frozen=True)
class NetworkSizes:
    """Sizes of the measurements.

    messages: bytes of the messages that are timed alone.
    product: rows and columns of f32 matrices.
    transfer_seconds: approximate seconds of the message that products overlap.
    most_bytes: largest size of that message.
    longer: the products take this many times as long as the message.
    steps, rounds: number of steps in each round, of which the fastest counts, and number of rounds.
    """

    messages: tuple[int, ...] = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22)
    product: int = 512
    transfer_seconds: float = 0.03
    most_bytes: int = 1 << 25
    longer: float = 1.1
    steps: int = 5
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class ConcurrentRun:
    """Seconds of a message alone, of products alone, and of a program that computes the products during the message."""

    message: float
    products: float
    both: float

    @property
    def busy(self) -> float:
        """Return the time by which the message delays the products, as a fraction of the message's time (0 to 1)."""
        return min(max((self.both - self.products) / self.message, 0.0), 1.0)


@dataclass(frozen=True)
class NetworkSeconds:
    """Measured times of a network.

    messages: (bytes, seconds) pairs.
    nodes, devices: number of nodes, and of devices on each.
    concurrent: runs in which products overlapped a message, one for each round.
    """

    messages: tuple[tuple[int, float], ...]
    nodes: int
    devices: int
    concurrent: tuple[ConcurrentRun, ...] = ()

    @property
    def exchange(self) -> Exchange:
        """Return the description of the network: an exchange between nodes of one port each.

        ``busy`` is the median over rounds, because a disturbance delays all programs of a round.
        """
        latency, byte = self._line()
        return Exchange(
            "between nodes",
            self.devices * (MOST_DEVICES // self.devices),
            self.devices / byte,
            latency,
            ports=1,
            busy=statistics.median(one.busy for one in self.concurrent) if self.concurrent else 1.0,
        )

    def seconds_of(self, size: int) -> float:
        """Return the predicted seconds of a message of ``size`` bytes."""
        latency, byte = self._line()
        return latency + size * byte

    def bytes_in(self, seconds: float) -> int:
        """Return the bytes of the message that takes ``seconds``, but at least those of the shortest timed message."""
        latency, byte = self._line()
        fewest = min(size for size, _ in self.messages)
        return max(round((seconds - latency) / byte), fewest)

    def _line(self) -> tuple[float, float]:
        """Return the latency of a message in seconds, and the seconds per byte.

        The longest messages determine the time of a byte, since an idle link may accept some bytes of short ones at
        once. The shortest message is a lower bound of the latency.
        """
        sizes, seconds = zip(*sorted(self.messages), strict=True)
        byte = max((seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]), 1e-15)
        known = [size * byte for size in sizes]
        (latency,) = nonnegative_fit([(1.0,)] * len(sizes), seconds, known)
        return max(latency, seconds[0] - known[0]), byte


def measure_network(world: MpiCommunicator, devices: int, sizes: NetworkSizes) -> NetworkSeconds:
    """Measure messages between nodes. All ranks must call it; ranks are numbered node by node, ``devices`` per node."""
    transfer = Transfer(world.size, devices)

    def rounds(works: Sequence[tuple[int, int]]) -> list[list[float]]:
        """Return for each round the seconds of the programs with ``works``, pairs (message bytes, products)."""
        programs = [_ready(world, program(transfer, *work, sizes.product)) for work in works]
        return [[one.least(sizes.steps) for one in programs] for _ in range(sizes.rounds)]

    alone = rounds([(size, 0) for size in sizes.messages])
    messages = tuple(zip(sizes.messages, map(min, zip(*alone, strict=True)), strict=True))
    found = NetworkSeconds(messages, world.size // devices, devices)
    # Ranks may find different sizes. Those of rank 0 apply, because it compiles the programs of all ranks.
    few = min(seconds for (seconds,) in rounds([(0, _FEW)]))
    size = min(found.bytes_in(sizes.transfer_seconds), sizes.most_bytes)
    count = max(round(sizes.longer * found.seconds_of(size) * _FEW / few), 1)
    concurrent = rounds([(size, 0), (0, count), (size, count)])
    return replace(found, concurrent=tuple(ConcurrentRun(*each) for each in concurrent))


def joined(node: MachineDescription, found: NetworkSeconds) -> MachineDescription:
    """Return the description of nodes like ``node`` that the measured network connects."""
    ranks = found.nodes * found.devices
    source = f"measured with {ranks} ranks on {found.nodes} nodes"
    return with_network(node, found.devices, [found.exchange], source)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Messages from each of ``ranks`` ranks to the rank with the same local rank on the next node.

    devices: number of ranks per node.
    """

    ranks: int
    devices: int

    @property
    def pairs(self) -> str:
        """Return the source-target pairs as HLO text."""
        to_next = ((rank, (rank + self.devices) % self.ranks) for rank in range(self.ranks))
        return ",".join(f"{{{source},{target}}}" for source, target in to_next)


def program(transfer: Transfer, size: int, count: int, product: int) -> str:
    """Return the HLO text of a program that computes ``count`` products in turn while a message is in flight.

    transfer: ranks that exchange messages. size: bytes of a message; 0: no message. count: number of products, which
    may be 0. product: rows and columns of the f32 matrices.
    """
    message, matrix = f"f32[{size // 4}]", f"f32[{product},{product}]"
    results = [(message, "received")] if size else []
    results += [(matrix, f"p{count}")] if count else []
    lines = [f"  x = {message} parameter(0)"] if size else []
    if count:
        first = len(lines)
        lines += [f"  p0 = {matrix} parameter({first})", f"  b = {matrix} parameter({first + 1})"]
    if size:
        pairs = f"source_target_pairs={{{transfer.pairs}}}"
        lines.append(f"  sent = ({message}, {message}) collective-permute-start(x), {pairs}")
    sums = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines += [f"  p{n + 1} = {matrix} dot(p{n}, b), {sums}" for n in range(count)]
    if size:
        lines.append(f"  received = {message} collective-permute-done(sent)")
    types, names = (", ".join(each) for each in zip(*results, strict=True))
    lines.append(f"  ROOT results = ({types}) tuple({names})")
    header = f"HloModule network, is_scheduled=true, replica_count={transfer.ranks}"
    return "\n".join([header, "ENTRY main {", *lines, "}"])


@dataclass(frozen=True)
class _Ready:
    """Program that is loaded on all ranks, and its inputs."""

    executable: RankExecutable
    state: ShardedArrays

    def least(self, steps: int) -> float:
        """Return the seconds of the fastest of ``steps`` steps, after one step to warm up.

        Ranks leave a barrier at times that differ by as much as a message takes. Each rank waits for its predecessor in
        a ring, so the mean of their times is the time of a message, whenever they begin.
        """
        every = time_steps(self.executable, self.state, 1 + steps, statistics.mean)
        return min(every[1:])


def _ready(world: MpiCommunicator, text: str) -> _Ready:
    """Compile ``text`` on rank 0 and load the program on all ranks."""

    def compiled() -> Compiled:
        options = CompileOptions(partitioned=True)
        return Compiled(compile_module(parse_module(text), world.size, options), "")

    executable = compile_on_first(world, compiled)
    state = executable.put([_values(argument.shape.dims) for argument in executable.inputs])
    return _Ready(executable, state)


def _values(dims: tuple[int, ...]) -> NDArray:
    """Return an input: a matrix whose rows sum to 1, so that repeated products keep their size, or a vector of 1."""
    return np.full(dims, 1.0 / dims[-1] if len(dims) == 2 else 1.0, np.float32)
