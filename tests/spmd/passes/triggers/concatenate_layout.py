"""Arrays joined, on a device or from all of them, along a dimension apart from the one it is contracted with."""

from __future__ import annotations

from spmd.device import ReplicaGroups
from spmd.hlo import HloModule, Stage
from spmd.ops.attrs import DotAttrs
from tests.spmd.passes.triggers.programs import FLOATS, INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("concatenate-layout")
def modules(rng: Rng) -> HloModule:
    devices = 1 + int(rng.integers(2))
    p = Program(rng, devices)
    p.result.stage = Stage.PARTITIONED
    kind = p.element_type((*FLOATS, *INTEGERS))
    rows, depth, columns = (p.integer(2, 5) for _ in range(3))
    parts = [p.value(kind, (p.integer(1, 3), rows, depth)) for _ in range(p.integer(2, 3))]
    joined = p.b.concatenate(parts, 0)
    if devices > 1:
        groups = ReplicaGroups((tuple(range(devices)),))
        part, dimension = p.choose(((parts[0], 0), (joined, p.integer(0, 2))))
        joined = p.b.all_gather(part, groups, dimension)
        rows, depth = joined.dims[1:]
    count = joined.dims[0]
    weights = p.value(kind, (count, depth, columns))
    results = [p.b.dot(joined, weights, DotAttrs((0, 2), (0, 1)))]
    if p.chance():
        x = p.value(kind, (p.integer(1, 4), rows))
        results.append(p.b.dot(x, joined, DotAttrs((1,), (1,))))
    if p.chance():
        results.append(p.b.dot(weights, joined, DotAttrs((0, 1), (0, 2))))
    return p.module(*results)
