"""Tests of ranks that are told to be on several nodes: the same bits as anywhere, and the bytes between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from bound_collectives import InAllocatedMemory, run_collective
from collective_scenarios import SCENARIOS

from collectives.communicator.actions.array_actions import Exchange
from collectives.communicator.interface import Communicator
from collectives.communicator.kinds import all_reduce
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from launch.pipeline import compile_module
from launch.ranks.rank_executable import RankExecutable
from runtime.cpu.collective.collective_engine import native_collective_engine
from spmd import parse
from spmd.device import ReductionKind

pytestmark = pytest.mark.mpi(min_size=4)

NODES: dict[str, Callable[[int, int], int]] = {
    "halves": lambda rank, size: rank // (size // 2),
    "uneven": lambda rank, size: int(rank == size - 1),
    "taking turns": lambda rank, _: rank % 2,
    "three": lambda rank, _: min(rank, 2),
    "alone": lambda rank, _: rank,
}


OTHERS = [name for name in NODES if name != "halves"]

VARIED = (
    "all_reduce_of_every_grouping",
    "reduce_scatter_along_each_dimension",
    "all_to_all_of_a_tuple",
    "broadcast_from_the_first_of_each_group",
    "several_in_flight_on_overlapping_groups",
)
"""Scenarios with all kinds of groups; tests/collectives/communicator has any nodes."""


@pytest.fixture(scope="module", params=OTHERS)
def spanning(request: pytest.FixtureRequest) -> Iterator[Communicator]:
    yield from communicator(request.param)


@pytest.fixture(scope="module")
def halves() -> Iterator[Communicator]:
    yield from communicator("halves")


@pytest.fixture(scope="module")
def without_engine() -> Iterator[Communicator]:
    yield from communicator("halves", shares=False)


def communicator(nodes: str, *, shares: bool = True) -> Iterator[Communicator]:
    from mpi4py import MPI

    from collectives.communicator.mpi.communicator import MpiCommunicator

    number = NODES[nodes](MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    comm = MpiCommunicator(
        timeout_seconds=60,
        engine=native_collective_engine() if shares else None,
        node_id=f"node {number}",
    )
    yield comm
    comm.close()


@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "all_reduce_of_every_type"])
def test_scenario_on_two_halves(name: str, halves: Communicator) -> None:
    SCENARIOS[name](halves)
    halves.barrier()


@pytest.mark.parametrize("name", VARIED)
def test_scenario_on_other_nodes(name: str, spanning: Communicator) -> None:
    SCENARIOS[name](spanning)
    spanning.barrier()


@pytest.mark.parametrize("name", ["all_reduce_of_every_type", "all_reduce_of_many_operands"])
def test_long_forms(name: str, halves: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands of every type and operation are reduced node by node, as large operands are."""
    monkeypatch.setattr(all_reduce, "ONE_SHOT_BYTES", 0)
    SCENARIOS[name](halves)
    halves.barrier()


@pytest.mark.parametrize(
    "name", ["all_reduce_of_every_grouping", "several_in_flight_on_overlapping_groups"]
)
def test_scenario_in_allocated_memory_of_two_halves(name: str, halves: Communicator) -> None:
    SCENARIOS[name](InAllocatedMemory(halves))
    halves.barrier()


PROGRAM = """
HloModule sums, num_partitions=COUNT
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[64,1024] parameter(0), sharding={devices=[COUNT,1]<=[COUNT]}
  zero = f32[] constant(0)
  r = f32[1024] reduce(x, zero), dimensions={0}, to_apply=add, sharding={replicated}
  y = f32[64,1024] broadcast(r), dimensions={1}, sharding={devices=[COUNT,1]<=[COUNT]}
  z = f32[64,1024] multiply(x, y), sharding={devices=[COUNT,1]<=[COUNT]}
  w = f32[64,1024] copy(z), sharding={replicated}
  ROOT out = (f32[1024], f32[64,1024]) tuple(r, w)
}
"""


def crossing_bytes(comm: Communicator, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the bytes for other nodes of each exchange that ``comm`` prepares or posts from now on."""
    from collectives.communicator.mpi.messages import Channel

    sizes: list[int] = []
    number_of = comm.nodes.number_of

    def counting(carry: Callable[[Channel, Exchange], object]) -> object:
        def counted(channel: Channel, exchange: Exchange) -> object:
            sizes.extend(
                array.nbytes
                for member, array in exchange.sends
                if number_of[channel.group[member]] != number_of[comm.rank]
            )
            return carry(channel, exchange)

        return counted

    for name in ("prepare", "post"):
        monkeypatch.setattr(Channel, name, counting(getattr(Channel, name)))
    return sizes


def test_a_program_gives_the_bits_of_one_process(
    halves: Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has a sum over all ranks, and an array that all ranks gather."""
    executable = compile_module(parse(PROGRAM.replace("COUNT", str(halves.size))), halves.size)
    x = np.random.default_rng(3).standard_normal((64, 1024)).astype(np.float32)
    crossing = crossing_bytes(halves, monkeypatch)
    got = RankExecutable.of(executable, halves).run(x)
    assert sum(crossing) > 0
    if got:
        assert [one.tobytes() for one in got] == [one.tobytes() for one in executable.run(x)]
    halves.barrier()


COUNT = 200_000
"""Elements of f32 for each member."""


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"])  # fmt: skip
def test_bytes_between_two_halves(
    kind: str,
    halves: Communicator,
    without_engine: Communicator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compare the bytes of one run in two levels with those of messages alone."""
    size = halves.size
    local = size // 2
    everyone = tuple(range(size))
    whole, part = COUNT * 4, COUNT * 4 // size
    forms: dict[str, tuple[Collective, int, int, int, int]] = {
        # elements of an operand, of a result; bytes over all links by messages alone, in two levels
        "all-reduce": (AllReduce(everyone, ReductionKind.SUM), COUNT, COUNT, size * whole, 2 * whole),
        "all-gather": (AllGather(everyone, 0), COUNT, COUNT * size, size * local * whole, size * whole),
        "reduce-scatter": (ReduceScatter(everyone, ReductionKind.SUM, 0), COUNT, COUNT // size, local * whole, whole + local * part),
        "all-to-all": (AllToAll(everyone, 0), COUNT, COUNT, local * whole, local * whole),
        "broadcast": (CollectiveBroadcast(everyone), COUNT, COUNT, local * whole, whole),
    }  # fmt: skip
    collective, operand, result, before, after = forms[kind]
    counted = []
    for comm in (without_engine, halves):
        with monkeypatch.context() as patch:
            crossing = crossing_bytes(comm, patch)
            value, got = np.full(operand, comm.rank, np.float32), np.empty(result, np.float32)
            run_collective(comm, collective, kind, [value], [got])
        sent = sum(crossing)
        counted.append(sum(int(one) for one in comm.all_gather_bytes(str(sent).encode())))
    assert counted == [before, after]


def test_groups_of_one_level_keep_their_way(
    halves: Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing crosses within a node; with one member on each node, messages carry the whole operand."""
    rank, half = halves.rank, halves.size // 2
    crossing = crossing_bytes(halves, monkeypatch)
    value, total = np.ones(COUNT, np.float32), np.empty(COUNT, np.float32)
    within = tuple(r for r in range(halves.size) if r // half == rank // half)
    run_collective(halves, AllReduce(within, ReductionKind.SUM), "within", [value], [total])
    assert sum(crossing) == 0
    pair = (rank % half, rank % half + half)
    run_collective(halves, AllReduce(pair, ReductionKind.SUM), "pair", [value], [total])
    assert sum(crossing) == COUNT * 4
