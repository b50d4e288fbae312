"""Collectives in two levels lead to what they mean, whatever the nodes and whoever is late: carried without MPI.

Python carries them out, and native code.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from collective_definition import dtype_of, make
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.communicator.hierarchical import running_prefix
from collectives.communicator.hierarchical.groups import GroupNodes, HierarchicalPlan
from collectives.communicator.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CollectiveBroadcast,
    CollectivePermute,
    ReduceScatter,
)
from collectives.communicator.kinds.all_gather import GatherRows
from collectives.communicator.kinds.all_reduce import (
    FoldedAllReduce,
    ReducedRows,
    SpreadAllReduce,
    batches_of,
)
from collectives.communicator.kinds.all_to_all import BatchedAllToAll, block_bytes_of
from collectives.communicator.kinds.collective_broadcast import BroadcastRow
from collectives.communicator.kinds.reduce_scatter import FoldedReduceScatter
from collectives.communicator.messages.native_message_steps import Mates, native_program
from collectives.communicator.steps.array_steps import ArrayStep, Exchange, Meeting, exchanges_of
from collectives.communicator.steps.shared_buffers import Buffers
from runtime.cpu.collective.collective_engine import native_step_engine
from spmd.device import ReductionKind
from tests.collectives.communicator.messages.message_world import Post, play

RUNS = 3


@dataclass
class Carrier:
    """Members' runs, one after the other without a pause, in an order that ``choose`` picks; counts what crosses."""

    nodes: GroupNodes
    choose: Callable[[int], int]
    mail: dict[tuple[int, int], deque[np.ndarray]] = field(default_factory=dict)
    arrivals: Counter[int] = field(default_factory=Counter)
    bytes_between_nodes: int = 0
    messages_between_nodes: int = 0

    def carry(self, members: Sequence[Iterator[Exchange | Meeting]]) -> None:
        """Until all are done. Fails where nobody can go on, and where a message is left."""
        current = [self._post(i, next(steps, None)) for i, steps in enumerate(members)]
        while any(one is not None for one in current):
            ready = [
                i for i, one in enumerate(current) if one is not None and self._is_over(i, one)
            ]
            assert ready, "the members wait for each other"
            member = ready[self.choose(len(ready))]
            one = current[member]
            if isinstance(one, Exchange):
                self._receive(member, one)
            current[member] = self._post(member, next(members[member], None))
        assert not any(self.mail.values()), "a message was never received"

    def _post(self, member: int, one: Exchange | Meeting | None) -> Exchange | Meeting | None:
        if isinstance(one, Meeting):
            self.arrivals[member] += 1
        for target, array in one.sends if isinstance(one, Exchange) else ():
            assert target != member
            assert array.flags.c_contiguous
            self.mail.setdefault((member, target), deque()).append(array.copy())
            if target not in self.nodes.mates(member):
                self.bytes_between_nodes += array.nbytes
                self.messages_between_nodes += 1
        return one

    def _is_over(self, member: int, one: Exchange | Meeting) -> bool:
        if isinstance(one, Exchange):
            wanted = Counter(source for source, _ in one.receives)
            return all(len(self.mail.get((s, member), ())) >= n for s, n in wanted.items())
        mates = self.nodes.mates(member)
        return all(self.arrivals[mate] >= self.arrivals[member] for mate in mates)

    def _receive(self, member: int, one: Exchange) -> None:
        for source, array in one.receives:
            message = self.mail[source, member].popleft()
            assert message.nbytes == array.nbytes
            array.reshape(-1).view(np.uint8)[:] = message.reshape(-1).view(np.uint8)


def one_after_the_other(_: int) -> int:
    return 0


Values = list[list[np.ndarray]]
"""By member, its operands."""


def run(
    plan: HierarchicalPlan | None,
    collective: Collective,
    nodes: GroupNodes,
    values: Callable[[int, int], list[np.ndarray]],
    results_like: Sequence[np.ndarray],
    choose: Callable[[int], int] = one_after_the_other,
    *,
    in_place: bool = False,
    runs: int = RUNS,
) -> Carrier:
    """Several runs with other ``values`` (of run and member) each, whose results are as defined."""
    members = range(nodes.count)
    inputs = [[values(r, i) for i in members] for r in range(runs)]
    combined = [collective.combine(one) for one in inputs]
    buffers = []
    for i in members:
        operands = tuple(np.empty_like(one) for one in inputs[0][i])
        results = operands if in_place else tuple(np.empty_like(one) for one in results_like)
        buffers.append(Buffers(operands, results))
    staging = {}
    if plan is not None:
        staging = {i: np.full(plan.staging_bytes(i), 0xA5, np.uint8) for i in members}

    def steps_of(member: int) -> tuple[ArrayStep, ...]:
        own = buffers[member]
        if plan is None:
            return collective.message_steps(collective.group[member], own.operands, own.results)
        return tuple(plan.steps(member, own, {mate: staging[mate] for mate in nodes.mates(member)}))

    def begin(member: int, r: int) -> None:
        for operand, value in zip(buffers[member].operands, inputs[r][member], strict=True):
            operand[...] = value

    def finish(member: int, r: int) -> None:
        results = buffers[member].results
        want = [np.empty_like(one) for one in results]
        collective.deliver(combined[r], member, want)
        assert [one.tobytes() for one in results] == [one.tobytes() for one in want]

    def runs_of(member: int) -> Iterator[Exchange | Meeting]:
        steps = steps_of(member)
        for r in range(runs):
            begin(member, r)
            met = 0
            for due in exchanges_of(steps):
                met += isinstance(due, Meeting)
                assert not isinstance(due, Meeting) or due.number == met
                yield due
            assert plan is None or met == plan.meetings
            finish(member, r)

    carrier = Carrier(nodes, choose)
    carrier.carry([runs_of(member) for member in members])
    assert plan is None or carrier.bytes_between_nodes == runs * plan.link_bytes
    if collective.has_code(native_step_engine(), buffers[0].operands):
        post, counters = Post(), np.zeros((nodes.count, 8), np.int64)
        everyones = [steps_of(member) for member in members]  # which keep their memory
        programs = [
            native_program(
                steps,
                post.preparing(member),
                _mates(nodes, member, counters),
                0 if plan is None else plan.meetings,
            )
            for member, steps in enumerate(everyones)
        ]
        play(programs, runs, begin, finish, choose)
    return carrier


def _mates(nodes: GroupNodes, member: int, counters: np.ndarray) -> Mates:
    others = tuple(mate for mate in nodes.mates(member) if mate != member)
    own, *addresses = (int(counters[one].ctypes.data) for one in (member, *others))
    return Mates(own, others, tuple(addresses))


def nodes_of(sizes: Sequence[int]) -> GroupNodes:
    """Nodes of so many members each, one after the other."""
    ends = np.cumsum(sizes)
    return GroupNodes(tuple(tuple(range(end - n, end)) for n, end in zip(sizes, ends, strict=True)))


@st.composite
def some_nodes(draw: st.DrawFn, *, in_order: bool = False) -> GroupNodes:
    """Two to four nodes of one to four members; group order goes anyhow, unless it has to go node by node."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4).filter(lambda s: max(s) > 1))
    ordered = nodes_of(sizes)
    if in_order:
        return ordered
    names = draw(st.permutations(range(ordered.count)))
    moved = [tuple(sorted(names[i] for i in node)) for node in ordered.nodes]
    return GroupNodes(tuple(sorted(moved)))


SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)
TYPES = st.sampled_from(["float32", "bfloat16", "int16", "bool", "complex64"]).map(dtype_of)


def chooser(data: st.DataObject) -> Callable[[int], int]:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    return lambda count: int(rng.integers(count))


def group_of(nodes: GroupNodes) -> tuple[int, ...]:
    return tuple(10 + member for member in range(nodes.count))


@given(st.data(), some_nodes())
@settings(max_examples=25)
def test_all_gather_and_broadcast(data: st.DataObject, nodes: GroupNodes) -> None:
    shapes = data.draw(st.lists(SHAPES, min_size=1, max_size=2))
    types = [data.draw(TYPES) for _ in shapes]
    dimension = data.draw(st.integers(0, min(map(len, shapes)) - 1))

    def values(r: int, i: int) -> list[np.ndarray]:
        return [make(i, s, t, seed=r) for s, t in zip(shapes, types, strict=True)]

    own = Buffers(tuple(values(0, 0)), ())
    gathered = [np.concatenate([one] * nodes.count, axis=dimension) for one in own.operands]
    gather = AllGather(group_of(nodes), dimension)
    run(GatherRows(nodes, own, dimension), gather, nodes, values, gathered, chooser(data))
    broadcast = CollectiveBroadcast(group_of(nodes))
    run(BroadcastRow(nodes, own), broadcast, nodes, values, own.operands, chooser(data), in_place=True)  # fmt: skip


@given(st.data(), some_nodes(in_order=True), st.sampled_from([8, 1 << 18]))
@settings(max_examples=25)
def test_all_reduce_forms(data: st.DataObject, nodes: GroupNodes, chunk_bytes: int) -> None:
    """In one round, folded, and spread; of several operands and types; in chunks of a few elements too."""
    shapes = data.draw(st.lists(SHAPES, min_size=1, max_size=3))
    types = [data.draw(TYPES) for _ in shapes]
    kind = data.draw(st.sampled_from([ReductionKind.SUM, ReductionKind.PRODUCT]))

    def values(r: int, i: int) -> list[np.ndarray]:
        return [make(i, s, t, seed=r) for s, t in zip(shapes, types, strict=True)]

    own = Buffers(tuple(values(0, 0)), ())
    batches = batches_of(own)
    collective = AllReduce(group_of(nodes), kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_prefix, "CHUNK_BYTES", chunk_bytes)
        for plan in (
            ReducedRows(nodes, own, kind),
            FoldedAllReduce(nodes, batches, kind),
            SpreadAllReduce(nodes, batches, kind),
        ):
            in_place = data.draw(st.booleans())
            run(plan, collective, nodes, values, own.operands, chooser(data), in_place=in_place)


@given(st.data(), some_nodes())
@settings(max_examples=15)
def test_all_reduce_in_any_order(data: st.DataObject, nodes: GroupNodes) -> None:
    like = np.empty(data.draw(st.integers(0, 50)), np.float32)
    kind = ReductionKind.SUM
    plan = SpreadAllReduce(nodes, batches_of(Buffers((like,), ())), kind)

    def values(r: int, i: int) -> list[np.ndarray]:
        return [make(i, like.shape, like.dtype, seed=r)]

    run(plan, AllReduce(group_of(nodes), kind), nodes, values, [like], chooser(data))


@given(st.data(), some_nodes(in_order=True), st.sampled_from([8, 1 << 18]))
@settings(max_examples=25)
def test_reduce_scatter(data: st.DataObject, nodes: GroupNodes, chunk_bytes: int) -> None:
    shapes = data.draw(st.lists(SHAPES, min_size=1, max_size=2))
    types = [data.draw(TYPES) for _ in shapes]
    dimension = data.draw(st.integers(0, min(map(len, shapes)) - 1))
    whole = [
        tuple(n * nodes.count if d == dimension else n for d, n in enumerate(shape))
        for shape in shapes
    ]
    kind = ReductionKind.SUM

    def values(r: int, i: int) -> list[np.ndarray]:
        return [make(i, s, t, seed=r) for s, t in zip(whole, types, strict=True)]

    vectors = tuple(running_prefix.Vector(one.dtype, one.size) for one in values(0, 0))
    results = [np.empty(shape, dtype) for shape, dtype in zip(shapes, types, strict=True)]
    collective = ReduceScatter(group_of(nodes), kind, dimension)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_prefix, "CHUNK_BYTES", chunk_bytes)
        plan = FoldedReduceScatter(nodes, vectors, dimension, kind)
        run(plan, collective, nodes, values, results, chooser(data))


@given(st.data(), some_nodes())
@settings(max_examples=25)
def test_all_to_all(data: st.DataObject, nodes: GroupNodes) -> None:
    shape, dtype = data.draw(SHAPES), data.draw(TYPES)
    dimension = data.draw(st.one_of(st.none(), st.integers(0, len(shape) - 1)))
    joined = None
    if dimension is None:
        shapes = [shape] * nodes.count
    else:
        whole = tuple(n * nodes.count if d == dimension else n for d, n in enumerate(shape))
        shapes = [whole, whole]
        if data.draw(st.booleans()):
            joined = data.draw(st.integers(0, len(shape) - 1))

    def values(r: int, i: int) -> list[np.ndarray]:
        return [make(i, s, dtype, seed=r + 10 * k) for k, s in enumerate(shapes)]

    own = values(0, 0)
    results = own
    if joined is not None:
        wide = tuple(n * nodes.count if d == joined else n for d, n in enumerate(shape))
        results = [np.empty(wide, dtype) for _ in shapes]
    size = block_bytes_of(own, nodes.count, dimension)
    collective = AllToAll(group_of(nodes), dimension, joined)
    plan = BatchedAllToAll(nodes, dimension, collective.joined, size)
    in_place = joined is None and data.draw(st.booleans())
    run(plan, collective, nodes, values, results, chooser(data), in_place=in_place)


# ---- what is chosen, and what crosses
F32 = np.dtype(np.float32)
LARGE = 1 << 20
"""Elements."""


def planned(collective: Collective, nodes: GroupNodes, buffers: Buffers) -> HierarchicalPlan | None:
    return collective.hierarchical_plan(nodes, buffers) if nodes.is_hierarchical else None


def crossed(
    collective: Collective, sizes: Sequence[int], elements: int, results: int, dtype: np.dtype = F32
) -> tuple[int, int]:
    """Bytes between nodes of one run, by messages alone and as it is planned."""
    nodes = nodes_of(sizes)
    value, like = np.ones(elements, dtype), np.empty(results, dtype)
    plan = planned(collective, nodes, Buffers((value,), (like,)))
    counts = [
        run(one, collective, nodes, lambda _r, _i: [value], [like], runs=1).bytes_between_nodes
        for one in (None, plan)
    ]
    return counts[0], counts[1]


@pytest.mark.parametrize(("sizes", "before", "after"), [((2, 2), 4, 2), ((4, 4), 8, 2), ((3, 1), 3, 2), ((2, 2, 2), 8, 4)])  # fmt: skip
def test_an_all_reduce_crosses_twice(sizes: tuple[int, ...], before: int, after: int) -> None:
    """Once as a prefix and once as a total over each of the links, however many members a node has."""
    count = sum(sizes)
    collective = AllReduce(tuple(range(count)), ReductionKind.SUM)
    size = LARGE // 4 // count * count
    got = crossed(collective, sizes, size, size)
    assert got == (before * 4 * size, after * 4 * size)


def test_an_all_gather_and_a_broadcast_cross_once_to_each_node() -> None:
    group = tuple(range(8))
    gather = crossed(AllGather(group, 0), (4, 4), 1000, 8000)
    assert gather == (8 * 4 * 4000, 8 * 4000)
    broadcast = crossed(CollectiveBroadcast(group), (4, 4), 1000, 1000)
    assert broadcast == (4 * 4000, 4000)


def test_a_reduce_scatter_crosses_as_prefix_and_half_as_total() -> None:
    collective = ReduceScatter(tuple(range(8)), ReductionKind.SUM, 0)
    assert crossed(collective, (4, 4), 80_000, 10_000) == (4 * 320_000, 320_000 + 160_000)
    # A prefix of bf16 is f32: two members a node gain nothing, and messages stay.
    narrow = ReduceScatter(tuple(range(4)), ReductionKind.SUM, 0)
    bf16 = crossed(narrow, (2, 2), 80_000, 20_000, dtype_of("bfloat16"))
    assert bf16[0] == bf16[1]


def test_small_all_to_alls_are_batched() -> None:
    nodes, collective = nodes_of((4, 4)), AllToAll(tuple(range(8)), 0)
    value = np.ones(8 * 16, np.float32)
    plan = planned(collective, nodes, Buffers((value,), (value,)))
    assert isinstance(plan, BatchedAllToAll)
    carriers = [
        run(one, collective, nodes, lambda _r, _i: [value], [value], runs=1) for one in (None, plan)
    ]
    assert [one.messages_between_nodes for one in carriers] == [32, 8]
    assert [one.bytes_between_nodes for one in carriers] == [32 * 64, 32 * 64]
    large = np.ones(8 << 20, np.uint8)
    assert planned(collective, nodes, Buffers((large,), (large,))) is None


def test_what_each_group_takes() -> None:
    def taken(collective: Collective, nodes: GroupNodes, elements: int) -> type | None:
        value = np.zeros(elements, np.float32)
        plan = planned(collective, nodes, Buffers((value,), (value,)))
        return None if plan is None else type(plan)

    four = AllReduce((0, 1, 2, 3), ReductionKind.SUM)
    assert taken(four, nodes_of((2, 2)), 10) is ReducedRows
    assert taken(four, nodes_of((2, 2)), LARGE) is FoldedAllReduce
    assert taken(four, GroupNodes(((0, 2), (1, 3))), LARGE) is SpreadAllReduce
    # Sixteen nodes are a long way for little data.
    many = AllReduce(tuple(range(32)), ReductionKind.SUM)
    assert taken(many, nodes_of((2,) * 16), 1000) is SpreadAllReduce
    assert taken(many, nodes_of((2,) * 16), LARGE * 4) is FoldedAllReduce
    # One level: within a node, or one member on each.
    assert taken(four, nodes_of((4,)), LARGE) is None
    assert taken(four, nodes_of((1, 1, 1, 1)), LARGE) is None
    ring = CollectivePermute((0, 1, 2, 3), ((0, 1), (1, 2), (2, 3), (3, 0)))
    assert taken(ring, nodes_of((2, 2)), LARGE) is None
