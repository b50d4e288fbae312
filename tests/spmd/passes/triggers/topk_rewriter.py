"""Sorts along any dimension of which only the first elements are read, of one or several operands."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import SortAttrs
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.comparators import comparator
from tests.spmd.passes.triggers.programs import FLOATS, INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("topk-rewriter")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    dims = list(p.dims(1, 3, empty=False))
    d = p.integer(0, len(dims) - 1)
    dims[d] = p.integer(4, 12)
    x = p.value(p.element_type((*FLOATS, *INTEGERS)), dims)
    operands = [x, *(_other(p, dims, d) for _ in range(p.integer(0, 2)))]
    operands = p.shuffled(operands)
    counting = [i for i, y in enumerate(operands) if y.opcode is Opcode.IOTA]
    tie = p.choose(counting) if counting and p.chance() else None
    kinds = [y.array_shape.element_type for y in operands]
    less = comparator(p, kinds, operands.index(x), tie)
    sort = p.b.create(Opcode.SORT, operands, SortAttrs(d, p.chance()), calls=(less,))
    values = [sort]
    if len(operands) > 1:
        read = p.some(range(len(operands)), at_least=1)
        values = [p.b.get_tuple_element(sort, i) for i in read]
    slices = [_slice(p, p.choose(values), d) for _ in range(p.integer(1, 3))]
    return p.module(*slices, *p.some(operands))


def _other(p: Program, dims: list[int], d: int) -> HloInstruction:
    if p.chance(0.6):
        kind = p.choose((PrimitiveType.S32, PrimitiveType.U32, PrimitiveType.S64, PrimitiveType.S8))
        return p.b.iota(kind, dims, d)
    return p.value(p.element_type(), dims)


def _slice(p: Program, x: HloInstruction, d: int) -> HloInstruction:
    starts, limits, strides = [], [], []
    for i, n in enumerate(x.dims):
        limit = p.integer(1, n // 2 if i == d else n)
        starts.append(0 if i == d else p.integer(0, limit - 1))
        limits.append(limit)
        strides.append(1 if i == d else p.integer(1, 2))
    return p.b.slice(x, starts, limits, strides)
