"""Collective-permutes along random ways, for the triggers of passes that look at them."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import Builder
from spmd.device import CollectiveGroupMode
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.source_target_pairs import ListedPairs, Pair
from tests.spmd.passes.triggers.devices import ids_of
from tests.spmd.passes.triggers.programs import Program


def exchanging_ids(p: Program) -> tuple[CollectiveGroupMode, int]:
    """Return what ids of exchanges mean, and how many there are: two or more."""
    modes = (CollectiveGroupMode.CROSS_PARTITION,) * 3 + (CollectiveGroupMode.CROSS_REPLICA,)
    return p.choose([(mode, n) for mode in modes if (n := ids_of(p, mode)) > 1])


def full_pairs(p: Program, count: int) -> list[Pair]:
    """Everybody sends and receives: round a ring, or anyhow."""
    if p.chance():
        step = p.integer(1, count - 1)
        return [(i, (i + step) % count) for i in p.shuffled(range(count))]
    return list(zip(range(count), p.shuffled(range(count)), strict=True))


def some_pairs(p: Program, count: int) -> list[Pair]:
    """Anybody sends to anybody else, or all do, or those in a row."""
    form = p.choose(("full", "some", "some", "row"))
    if form == "row":
        return [(i, i + 1) for i in range(count - 1)]
    pairs = full_pairs(p, count)
    return pairs if form == "full" else p.some(pairs, at_least=1)


def permute(
    p: Program,
    operands: Sequence[HloInstruction],
    pairs: Sequence[Pair],
    mode: CollectiveGroupMode,
    b: Builder | None = None,
) -> HloInstruction:
    """Written by ``b``, else into the entry."""
    by_partition = mode is CollectiveGroupMode.CROSS_PARTITION
    channel = p.b.scope.channel_id() if by_partition else None
    attrs = CollectivePermuteAttrs(ListedPairs(tuple(pairs)), channel)
    return (b or p.b).create(Opcode.COLLECTIVE_PERMUTE, operands, attrs)
