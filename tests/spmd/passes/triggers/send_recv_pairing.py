"""Permutes between partitions in rows, one behind the other or beside it, written as sends and receives."""

from __future__ import annotations

from itertools import pairwise

from spmd.device import CollectiveGroupMode
from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.gathers import part
from tests.spmd.passes.triggers.permutes import permute
from tests.spmd.passes.triggers.programs import ANY_TYPE, Program
from tests.spmd.passes.triggers.registry import Rng, trigger
from tests.spmd.passes.triggers.sends import write_as_sends


@trigger("send-recv-pairing")
def modules(rng: Rng) -> HloModule:
    partitions = int(rng.integers(2, 7))
    p = Program(rng, partitions, replicas=int(rng.integers(1, 3)))
    results: list[HloInstruction] = []
    for _ in range(p.integer(1, 4)):
        row = p.shuffled(range(partitions))
        pairs = p.some(list(pairwise(row)), at_least=1)
        x = p.choose(results) if results and p.chance() else part(p, p.element_type(ANY_TYPE))
        results.append(permute(p, [x], pairs, CollectiveGroupMode.CROSS_PARTITION))
    return write_as_sends(p.module(*[p.after(x) for x in results]))
