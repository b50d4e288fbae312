"""Maps of elementwise functions with constants, also within one another."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("map-inliner")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims()
    operands = [p.value(kind, dims) for _ in range(p.integer(1, 3))]
    function = _function(p, kind, len(operands), depth=p.integer(0, 1))
    mapped = _map(p.b, operands, function)
    return p.module(mapped, *p.some(operands))


def _function(p: Program, kind: PrimitiveType, arity: int, depth: int) -> HloComputation:
    inner = _function(p, kind, arity, depth - 1) if depth else None
    b, arguments = p.computation("function", *[ArrayShape(kind, ())] * arity)
    made = list(arguments)
    for _ in range(p.integer(0, 3)):
        x, y = p.choose(made), p.choose([*made, b.scalar(kind, p.integer(0, 3))])
        made.append(b.binary(p.choose((Opcode.ADD, Opcode.MULTIPLY, Opcode.SUBTRACT)), x, y))
    if not kind.is_complex and p.chance(0.4):
        made.append(b.select(b.compare(made[-1], made[0], "LT"), made[0], made[-1]))
    if inner is not None:
        made.append(b.add(made[-1], _map(b, arguments, inner)))
    return p.returns(made[-1] if p.chance(0.9) else arguments[0])


def _map(
    b: Builder, operands: tuple[HloInstruction, ...] | list[HloInstruction], f: HloComputation
) -> HloInstruction:
    attrs = DimensionsAttrs(tuple(range(len(operands[0].dims))))
    return b.create(Opcode.MAP, operands, attrs, calls=(f,))
