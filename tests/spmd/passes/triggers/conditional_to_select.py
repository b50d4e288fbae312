"""Conditionals, also within one another, in the functions of maps, and between what elementwise operations read."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape, PrimitiveType, TupleShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("conditional-to-select")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    if p.chance(0.3):
        return _of_arrays(p)
    kind, dims = p.element_type(), p.dims()
    selector = p.parameter(ArrayShape(PrimitiveType.S32, dims))
    operands = [selector, *(p.value(kind, dims) for _ in range(p.integer(1, 3)))]
    scalars = [ArrayShape(x.array_shape.element_type, ()) for x in operands]
    b, parameters = p.computation("function", *scalars)
    chosen = _conditional(p, b, list(parameters), depth=p.integer(0, 1))
    function = p.returns(chosen)
    attrs = DimensionsAttrs(tuple(range(len(dims))))
    mapped = p.b.create(Opcode.MAP, operands, attrs, calls=(function,))
    return p.module(p.after(mapped), *p.some(operands))


def _of_arrays(p: Program) -> HloModule:
    """Return a conditional between branches that read the same arrays.

    They return one array that is read once.
    """
    kind, dims = p.element_type(), p.dims(empty=False)
    values = [p.value(kind, dims) for _ in range(p.integer(1, 3))]
    count = p.integer(2, 4)

    def branch() -> HloComputation:
        b, (parameter,) = p.computation("branch", operand.shape)
        parts = [b.get_tuple_element(parameter, i) for i in range(len(values))]
        result = b.unary(Opcode.NEGATE, parts[0]) if p.chance() else b.full(parts[0].array_shape, 1)
        for x in parts:
            result = b.binary(p.choose((Opcode.ADD, Opcode.SUBTRACT)), result, x)
        return p.returns(result)

    operand = p.b.tuple(values)
    predicated = count == 2 and p.chance()
    selector = p.parameter(ArrayShape(PrimitiveType.PRED if predicated else PrimitiveType.S32, ()))
    chosen = p.b.conditional(selector, [branch() for _ in range(count)], [operand] * count)
    return p.module(p.b.unary(Opcode.NEGATE, chosen), *p.some(values))


def _conditional(
    p: Program, b: Builder, values: list[HloInstruction], depth: int
) -> HloInstruction:
    """Choose by the first of ``values`` among branches of the others."""
    count, pair = p.integer(2, 4), p.chance(0.4)
    tuples = [b.tuple(values) for _ in range(count)]
    branches = [_branch(p, operand, pair, depth) for operand in tuples]
    selector = values[0]
    if count == 2 and p.chance():
        selector = b.compare(selector, b.scalar_like(selector, p.integer(-1, 2)), "GT")
    chosen = b.conditional(selector, branches, tuples)
    return b.get_tuple_element(chosen, p.integer(0, 1)) if pair else chosen


def _branch(p: Program, operand: HloInstruction, pair: bool, depth: int) -> HloComputation:
    assert isinstance(operand.shape, TupleShape)
    b, (parameter,) = p.computation("branch", operand.shape)
    values = [b.get_tuple_element(parameter, i) for i in range(len(operand.shape.elements))]
    made = values[1:]
    for _ in range(p.integer(0, 2)):
        x, y = p.choose(made), p.choose([*made, b.scalar_like(values[1], p.integer(0, 3))])
        made.append(b.binary(p.choose((Opcode.ADD, Opcode.MULTIPLY, Opcode.SUBTRACT)), x, y))
    result = _conditional(p, b, values, depth - 1) if depth and p.chance() else made[-1]
    return p.returns(b.tuple([result, made[0]]) if pair else result)
