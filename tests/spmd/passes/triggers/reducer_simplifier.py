"""Reductions, windows and scatters by reducers that make something of elements first, or have two results."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs, ScatterAttrs, WindowAttrs
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_KINDS = (*INTEGERS, PrimitiveType.F32)


@trigger("reducer-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kinds = [p.element_type(_KINDS) for _ in range(p.integer(1, 2))]
    dims = p.dims(1, 3)
    reducer = _reducer(p, kinds)
    elements = [p.value(kind, dims) for kind in kinds]
    inits = [p.b.scalar(kind, p.integer(0, 3)) for kind in kinds]
    write = p.choose((_reduce, _reduce_window, _scatter))
    made = write(p, reducer, elements, inits)
    results = [made] if len(kinds) == 1 else [p.b.get_tuple_element(made, i) for i in range(2)]
    return p.module(*p.some(results, at_least=1), *p.some(elements))


def _reducer(p: Program, kinds: Sequence[PrimitiveType]) -> HloComputation:
    scalars = [ArrayShape(kind, ()) for kind in kinds]
    b, parameters = p.computation("reducer", *scalars, *scalars)
    totals, elements = parameters[: len(kinds)], parameters[len(kinds) :]
    results = []
    for total, kind in zip(totals, kinds, strict=True):
        element = _made(p, b, kind, elements)
        sides = p.shuffled([total, element])
        operation = p.choose((Opcode.ADD, Opcode.MAXIMUM, Opcode.MINIMUM, Opcode.MULTIPLY))
        results.append(b.binary(operation, *sides))
    return p.returns(results[0] if len(results) == 1 else b.tuple(results))


def _made(
    p: Program, b: Builder, kind: PrimitiveType, elements: Sequence[HloInstruction]
) -> HloInstruction:
    x = b.convert(p.choose(elements), kind)
    for _ in range(p.integer(2 - len(elements), 2)):
        y = p.choose([x, b.convert(p.choose(elements), kind), b.scalar(kind, p.integer(0, 3))])
        x = b.binary(p.choose((Opcode.MAXIMUM, Opcode.SUBTRACT)), x, y)
    return x


def _reduce(
    p: Program,
    reducer: HloComputation,
    elements: Sequence[HloInstruction],
    inits: Sequence[HloInstruction],
) -> HloInstruction:
    axes = p.some(range(len(elements[0].dims)))
    operands = (*elements, *inits)
    return p.b.create(Opcode.REDUCE, operands, DimensionsAttrs(tuple(axes)), calls=(reducer,))


def _reduce_window(
    p: Program,
    reducer: HloComputation,
    elements: Sequence[HloInstruction],
    inits: Sequence[HloInstruction],
) -> HloInstruction:
    window = Window(
        tuple(
            WindowDimension(size=p.integer(1, 3), padding_low=p.integer(0, 2), padding_high=2)
            for _ in elements[0].dims
        )
    )
    attrs = WindowAttrs(window)
    return p.b.create(Opcode.REDUCE_WINDOW, (*elements, *inits), attrs, calls=(reducer,))


def _scatter(
    p: Program,
    reducer: HloComputation,
    elements: Sequence[HloInstruction],
    inits: Sequence[HloInstruction],
) -> HloInstruction:
    """The elements are rows, which go to places of five rows, some of them outside."""
    count, *row = elements[0].dims
    kinds = [x.array_shape.element_type for x in elements]
    operands = [p.value(kind, (5, *row)) for kind in kinds]
    six = p.b.scalar(PrimitiveType.S32, 6)
    places = p.b.iota(PrimitiveType.S32, (count, 1), 0)
    places = p.b.remainder(places, p.b.broadcast_scalar(six, (count, 1)))
    attrs = ScatterAttrs(tuple(range(1, len(row) + 1)), (0,), (0,), 1)
    return p.b.create(Opcode.SCATTER, (*operands, places, *elements), attrs, calls=(reducer,))
