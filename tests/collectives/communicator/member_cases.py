"""Collectives of every kind for members that take turns (member_world.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from collective_definition import dtype_of, make

from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.ragged_all_to_all import RaggedAllToAll
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from spmd.device import ReductionKind
from tests.collectives.communicator.member_world import Arrays, Case


def plain(
    collective: Collective,
    shapes: Sequence[tuple[int, ...]],
    results: Sequence[tuple[int, ...]],
    dtype: str = "float32",
    aliases: dict[int, int] | None = None,
    together: int = 0,
) -> Case:
    kind = dtype_of(dtype)

    def operands(member: int, run: int) -> Arrays:
        return [make(member, shape, kind, seed=10 * run + k) for k, shape in enumerate(shapes)]

    return Case(
        [collective] * len(collective.group),
        operands,
        lambda: [np.empty(shape, kind) for shape in results],
        aliases or {},
        together,
    )


def permute(count: int, pairs: Sequence[tuple[int, int]], aliases: dict[int, int]) -> Case:
    group = CollectivePermute.among(tuple(pairs), pairs[0][0]).group
    shapes = [(5, 3), (191, 5), (0, 2)]
    case = plain(CollectivePermute(group, tuple(pairs)), shapes, shapes, aliases=aliases)
    assert len(group) <= count
    return case


def ragged(group: tuple[int, ...], updates: int, *, in_place: bool) -> Case:
    """Receivers lay what comes one after the other, by source and update."""
    count = len(group)
    rows = 6 + 3 * count * updates

    def operands(member: int, run: int) -> Arrays:
        rng = np.random.default_rng([run, count, updates])
        sizes = rng.integers(0, 3, (count, count, updates))
        starts = rng.integers(0, 4, (count, count, updates))
        places = np.zeros_like(sizes)
        for receiver in range(count):
            flat = sizes[:, receiver].reshape(-1)
            places[:, receiver] = (np.cumsum(flat) - flat).reshape(count, updates)
        tables = [starts[member], sizes[member], places[member], sizes[:, member]]
        return [
            make(member, (rows, 2), dtype_of("float32"), seed=run),
            np.full((rows, 2), run, np.float32),
            *(np.ascontiguousarray(table.reshape(-1), np.int32) for table in tables),
        ]

    return Case(
        [RaggedAllToAll(group)] * count,
        operands,
        lambda: [np.empty((rows, 2), np.float32)],
        {0: 1} if in_place else {},
    )


def cases(count: int) -> dict[str, Case]:
    """Every kind among ``count`` members, whose ranks do not ascend."""
    group = tuple(reversed(range(count)))
    total = ReductionKind.SUM
    n = count
    ring = [(i, (i + 1) % n) for i in range(n)]
    shift = [(i, i + 1) for i in range(n - 1)] or [(0, 0)]
    swap = [(i, j) for i in range(n) if (j := i ^ 1) < n] or [(0, 0)]
    whole = {0: 0, 1: 1, 2: 2}
    return {
        "all-reduce": plain(AllReduce(group, total), [(7,), (), (0, 3), (40, 5)], [(7,), (), (0, 3), (40, 5)]),
        "all-reduce over its operands": plain(AllReduce(group, total), [(3,), (50,)], [(3,), (50,)], aliases={0: 0, 1: 1}),
        "all-reduce of bf16": plain(AllReduce(group, ReductionKind.MAX), [(33,)], [(33,)], "bfloat16"),
        "all-gather": plain(AllGather(group, 1), [(3, 2, 2), (2, 1)], [(3, 2 * n, 2), (2, n)]),
        "all-gather over its tiles": dataclasses.replace(plain(AllGather(group, 0), [(2, 3), (64,), (0, 2)], [(2 * n, 3), (64 * n,), (0, 2)]), tiles=True),
        "all-gather over its operand": plain(AllGather(group, 0), [(0, 3)], [(0, 3)], aliases={0: 0}),
        "reduce-scatter over its tiles": dataclasses.replace(plain(ReduceScatter(group, total, 0), [(2 * n, 3), (64 * n,), (0, 2)], [(2, 3), (64,), (0, 2)]), tiles=True),
        "reduce-scatter": plain(ReduceScatter(group, total, 1), [(4, 3 * n)], [(4, 3)]),
        "all-to-all": plain(AllToAll(group, 1), [(2, 2 * n, 3)], [(2, 2 * n, 3)]),
        "all-to-all over its operand": plain(AllToAll(group, 0), [(n, 3)], [(n, 3)], aliases={0: 0}),
        "all-to-all over its operands, long rows": plain(AllToAll(group, 1), [(5, 300 * n), (n, n)], [(5, 300 * n), (n, n)], aliases={0: 0, 1: 1}),
        "all-to-all over its operand, short rows": plain(AllToAll(group, 2), [(3, 3, 5 * n)], [(3, 3, 5 * n)], "bfloat16", {0: 0}),
        "all-to-all over one of its operands": plain(AllToAll(group, 0), [(n, 3)] * 2, [(n, 3)] * 2, aliases={1: 1}),
        "all-to-all over each other's operands": plain(AllToAll(group, 0), [(n, 3)] * 2, [(n, 3)] * 2, aliases={0: 1, 1: 0}),
        "all-to-all, joined before": plain(AllToAll(group, 3, 0), [(1, 5, 2, n, 3)], [(n, 5, 2, 1, 3)]),
        "all-to-all, joined behind": plain(AllToAll(group, 1, 3), [(3, n, 4, 1, 2)], [(3, 1, 4, n, 2)]),
        "all-to-all, of several, joined elsewhere": plain(AllToAll(group, 0, 1), [(2 * n, 3), (n, 1)], [(2, 3 * n), (1, n)], "bfloat16"),
        "all-to-all of a tuple over its operands": plain(AllToAll(group, None), [(333,)] * n, [(333,)] * n, aliases={k: k for k in range(n)}),
        "all-to-all of a tuple": plain(AllToAll(group, None), [(2, 3)] * n, [(2, 3)] * n),
        "all-reduce, held together": plain(AllReduce(group, total), [(7,), (0, 3), (40, 5)], [(7,), (0, 3), (40, 5)], together=1),
        "all-gather, held together": plain(AllGather(group, 1), [(3, 2, 2), (2, 1)], [(3, 2 * n, 2), (2, n)], together=1),
        "broadcast, held together": plain(CollectiveBroadcast(group), [(5,), (2,)], [(5,), (2,)], together=1),
        "all-reduce, held by every other": plain(AllReduce(group, total), [(7,), (40, 5)], [(7,), (40, 5)], together=2),
        "all-gather, held by every other": plain(AllGather(group, 0), [(3, 2)], [(3 * n, 2)], together=2),
        "broadcast, held by every other": plain(CollectiveBroadcast(group), [(5,), (2,)], [(5,), (2,)], together=2),
        "broadcast": plain(CollectiveBroadcast(group), [(5,), (2,)], [(5,), (2,)]),
        "permute in a ring": permute(n, ring, {}),
        "permute in a ring over its operands": permute(n, ring, whole),
        "permute in a ring over one of its operands": permute(n, ring, {0: 0}),
        "permute with ends": permute(n, shift, {}),
        "permute with ends over its operands": permute(n, shift, whole),
        "permute of pairs over its operands": permute(n, swap, whole),
        "permute from one to all": permute(n, [(0, i) for i in range(n)], {}),
        "permute from one to all over its operands": permute(n, [(0, i) for i in range(n)], whole),
        "ragged-all-to-all": ragged(group, 2, in_place=False),
        "ragged-all-to-all into its output": ragged(group, 1, in_place=True),
    }  # fmt: skip
