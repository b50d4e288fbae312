"""Tuples taken apart where they were put together, and put together again as they were."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from spmd.shape import TupleShape
from tests.spmd.passes.triggers.programs import ANY_TYPE, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("tuple-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    return p.module(*p.choose((_elements, _nested, _rebuilt))(p))


def _values(p: Program) -> list[HloInstruction]:
    return [p.value(p.element_type(ANY_TYPE), p.dims()) for _ in range(p.integer(1, 4))]


def _elements(p: Program) -> list[HloInstruction]:
    values = _values(p)
    whole = p.b.tuple(values)
    taken = p.some(range(len(values)), at_least=1)
    return [p.after(p.b.get_tuple_element(whole, i)) for i in taken]


def _nested(p: Program) -> list[HloInstruction]:
    values = _values(p)
    whole = p.b.tuple([p.b.tuple(values), *_values(p)])
    inner = p.b.get_tuple_element(whole, 0)
    return [p.after(p.b.get_tuple_element(inner, p.integer(0, len(values) - 1)))]


def _rebuilt(p: Program) -> list[HloInstruction]:
    shapes = [p.shape(ANY_TYPE) for _ in range(p.integer(1, 4))]
    source = p.parameter(TupleShape(tuple(shapes)))
    elements = [p.b.get_tuple_element(source, i) for i in range(len(shapes))]
    results = [p.b.tuple(elements)]
    if p.chance():
        results.append(p.after(p.choose(elements)))
    return results
