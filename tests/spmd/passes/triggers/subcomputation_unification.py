"""Reductions and sorts whose equal functions are written out for each."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.ops.attrs import DimensionsAttrs, SortAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_COMBINERS = (Opcode.ADD, Opcode.MAXIMUM, Opcode.MULTIPLY, Opcode.MINIMUM)


@trigger("subcomputation-unification")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    results: list[HloInstruction] = []
    kind, combiner = p.element_type((PrimitiveType.F32, PrimitiveType.S32)), p.choose(_COMBINERS)
    for index in range(p.integer(2, 4)):
        combine = combiner if index < 2 else p.choose(_COMBINERS)
        x = p.value(kind, p.dims(1))
        start = p.parameter(ArrayShape(kind, ()))
        dims = DimensionsAttrs(tuple(p.some(range(len(x.dims)), at_least=1)))
        reducer = _function(p, f"region_{index}", combine, kind)
        results.append(p.b.create(Opcode.REDUCE, (x, start), dims, calls=(reducer,)))
    if p.chance():
        for index in range(2):
            order = _function(p, f"less_{index}", Opcode.COMPARE, kind)
            x = p.value(kind, p.dims(1))
            attrs = SortAttrs(p.integer(0, len(x.dims) - 1), is_stable=True)
            results.append(p.b.create(Opcode.SORT, (x,), attrs, calls=(order,)))
    return p.module(*results)


def _function(p: Program, name: str, opcode: Opcode, kind: PrimitiveType) -> HloComputation:
    """Return a function of two scalars."""
    scalar = ArrayShape(kind, ())
    inside, (x, y) = p.computation(name, scalar, scalar)
    if opcode is Opcode.COMPARE:
        return p.returns(inside.create(opcode, (x, y), CompareAttrs("LT")))
    return p.returns(inside.binary(opcode, x, y))
