"""Arrays joined along a dimension that stands apart from the one it is contracted with."""

from __future__ import annotations

from spmd.hlo import HloModule, Stage
from spmd.ops.attrs import DotAttrs
from tests.spmd.passes.triggers.programs import FLOATS, INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("concatenate-layout")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    p.result.stage = Stage.PARTITIONED
    kind = p.element_type((*FLOATS, *INTEGERS))
    rows, depth, columns = (p.integer(2, 5) for _ in range(3))
    parts = [p.value(kind, (p.integer(1, 3), rows, depth)) for _ in range(p.integer(2, 3))]
    joined = p.b.concatenate(parts, 0)
    count = joined.dims[0]
    weights = p.value(kind, (count, depth, columns))
    results = [p.b.dot(joined, weights, DotAttrs((0, 2), (0, 1)))]
    if p.chance():
        x = p.value(kind, (p.integer(1, 4), rows))
        results.append(p.b.dot(x, joined, DotAttrs((1,), (1,))))
    if p.chance():
        results.append(p.b.dot(weights, joined, DotAttrs((0, 1), (0, 2))))
    return p.module(*results)
