"""Sorts with operands that nobody reads, and sorts of single elements."""

from __future__ import annotations

from spmd.hlo import HloModule, Opcode
from spmd.ops.attrs import SortAttrs
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.comparators import comparator
from tests.spmd.passes.triggers.programs import FLOATS, INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("sort-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    single = p.chance(0.2)
    dims = list(p.dims(1, 3))
    d = p.integer(0, len(dims) - 1)
    dims[d] = p.integer(0, 1) if single else p.integer(2, 9)
    x = p.value(p.element_type((*FLOATS, *INTEGERS)), dims)
    count = p.integer(0 if single else 1, 3)
    operands = [x, *(p.value(p.element_type(), dims) for _ in range(count))]
    position = p.b.iota(PrimitiveType.S32, dims, d) if count and p.chance(0.3) else None
    operands = p.shuffled(operands if position is None else [*operands, position])
    tie = None if position is None else operands.index(position)
    kinds = [y.array_shape.element_type for y in operands]
    by = operands.index(x)
    less = comparator(p, kinds, by, tie)
    sort = p.b.create(Opcode.SORT, operands, SortAttrs(d, p.chance()), calls=(less,))
    if len(operands) == 1:
        return p.module(p.after(sort))
    unread = p.choose([i for i in range(len(operands)) if i not in (by, tie)])
    read = p.some([i for i in range(len(operands)) if i != unread], at_least=1)
    parts = [p.b.get_tuple_element(sort, i) for i in read]
    return p.module(*parts, *p.some(operands))
