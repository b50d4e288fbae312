"""A pair may be joined exactly where the graph of joined instructions stays without a cycle."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import combinations

import numpy as np
import pytest

from collectives.passes.dependencies import Dependencies
from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule
from spmd.shape import ArrayShape, PrimitiveType

SCALAR = ArrayShape(PrimitiveType.F32, ())


def random_graph(rng: np.random.Generator) -> list[HloInstruction]:
    """Sums of earlier ones, some of which wait for another one besides."""
    module = HloModule("graph")
    module.entry = module.new_computation("entry")
    b = Builder(module.entry)
    made = [b.parameter(0, SCALAR), b.parameter(1, SCALAR)]
    for _ in range(12):
        near = made[-5:] if rng.random() < 0.5 else made
        x, y, z = (near[int(rng.integers(len(near)))] for _ in range(3))
        made.append(b.add(x, y))
        if rng.random() < 0.2:
            z.add_control_dependency_to(made[-1])
    return made


def is_acyclic(order: list[HloInstruction], name: dict[HloInstruction, HloInstruction]) -> bool:
    graph: dict[HloInstruction, set[HloInstruction]] = {}
    for x in order:
        before = {name[y] for y in (*x.operands, *x.control_predecessors)}
        graph.setdefault(name[x], set()).update(before)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_pairs_that_may_be_joined(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = random_graph(rng)
    nodes = [x for x in order if rng.random() < 0.7]
    dependencies = Dependencies(order, nodes)
    name = {x: x for x in order}
    asked = list(combinations(nodes, 2))
    for i in rng.permutation(len(asked)):
        x, y = (name[node] for node in asked[i])
        if x is y:
            continue
        joined = {node: x if first is y else first for node, first in name.items()}
        allowed = is_acyclic(order, joined)
        assert dependencies.may_join(x, y) == allowed
        if allowed and rng.random() < 0.5:
            dependencies.join(x, y)
            name = joined
