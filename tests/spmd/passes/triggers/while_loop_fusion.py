"""Short loops of elementwise bodies: values that depend on each other, on the counter, and on a table of constants."""

from __future__ import annotations

import runtime.compile
from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule, Stage
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

assert runtime.compile, "lowerings are registered: what has none is not fused"

_TYPES = (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.S32, PrimitiveType.U32)


@trigger("while-loop-fusion")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    p.result.stage = Stage.PARTITIONED
    kind, dims = p.element_type(_TYPES), p.dims(1, 3, empty=False)
    shape = ArrayShape(kind, dims)
    with_table = p.chance()

    def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
        x, y, column, table, other = elements
        z = b.add(y, b.broadcast(column, (0,), dims))
        if with_table:
            first = b.reshape(b.slice(table, (1,), (2,), (1,)), ())
            z = b.add(z, b.broadcast(first, (), dims))
        return [z, b.subtract(x, z) if p.chance() else x, column, other, table]

    column = p.parameter(ArrayShape(kind, dims[:1]))
    tables = [p.constant(kind, (3,)) for _ in range(2)]
    initial = [p.parameter(shape), p.value(kind, dims), column, *tables]
    loop = counted_loop(p, p.integer(2, 7), initial, body)
    return p.module(*results(p, loop, *p.some((0, 1), at_least=1)))
