"""Collectives in two levels lead to what they mean, whatever the nodes and whoever is late: carried without MPI.

Python carries them out, and native code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from collective_definition import dtype_of, make
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.hierarchical import running_prefix
from collectives.communicator.hierarchical.algorithms import GroupNodes, HierarchicalAlgorithm
from collectives.communicator.kinds.all_gather import AllGather, GatherRows
from collectives.communicator.kinds.all_reduce import (
    AllReduce,
    FoldedAllReduce,
    ReducedRows,
    SpreadAllReduce,
    batches_of,
)
from collectives.communicator.kinds.all_to_all import AllToAll, BatchedAllToAll, block_bytes_of
from collectives.communicator.kinds.collective_broadcast import BroadcastRow, CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.reduce_scatter import FoldedReduceScatter, ReduceScatter
from spmd.device import ReductionKind
from tests.collectives.communicator.kinds.hierarchical_world import (
    SHAPES,
    TYPES,
    chooser,
    group_of,
    nodes_of,
    run,
    some_nodes,
)


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
    """Operands of several types are reduced in one round, folded, and spread; also in chunks of a few elements."""
    shapes = data.draw(st.lists(SHAPES, min_size=1, max_size=3))
    types = [data.draw(TYPES) for _ in shapes]
    kind = data.draw(st.sampled_from([ReductionKind.SUM, ReductionKind.PRODUCT]))

    def values(r: int, i: int) -> list[np.ndarray]:
        return [make(i, s, t, seed=r) for s, t in zip(shapes, types, strict=True)]

    own = Buffers(tuple(values(0, 0)), ())
    batches = batches_of(own.operands)
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
    plan = SpreadAllReduce(nodes, batches_of((like,)), kind)

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


def planned(
    collective: Collective, nodes: GroupNodes, buffers: Buffers
) -> HierarchicalAlgorithm | None:
    return collective.hierarchical_algorithm(nodes, buffers) if nodes.is_hierarchical else None


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
    """The operand crosses each link once as a prefix and once as a total, however many members a node has."""
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
