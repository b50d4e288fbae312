"""Scans of no to three inputs, outputs and carries, along any dimension, in either direction."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops.attrs import ScanAttrs
from spmd.shape import ArrayShape, Shape, TupleShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("scan-expander")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(), p.dims(1, 3, most=64)
    d = p.integer(0, len(dims) - 1)
    rest = (*dims[:d], *dims[d + 1 :])
    inputs, outputs = p.integer(0, 3), p.integer(0, 2)
    if inputs + outputs == 0:
        inputs = 1
    carries = p.integer(0, 2) if inputs else p.integer(1, 2)
    if outputs + carries == 0:
        carries = 1
    whole, part = ArrayShape(kind, dims), ArrayShape(kind, rest)
    function = _function(p, part, inputs + carries, outputs + carries)
    shapes: list[Shape] = [whole] * outputs + [part] * carries
    attrs = ScanAttrs(d, carries, is_reverse=p.chance(), is_associative=p.chance(0.2))
    operands = [p.value(kind, dims) for _ in range(inputs)]
    operands += [p.value(kind, rest) for _ in range(carries)]
    shape = shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))
    scan = p.b.create(Opcode.SCAN, operands, attrs, shape=shape, calls=(function,))
    return p.module(scan)


def _function(p: Program, part: ArrayShape, taken: int, given: int) -> HloComputation:
    """Each result is the product of some arguments less the sum of all."""
    b, arguments = p.computation("step", *[part] * taken)
    total = arguments[0]
    for x in arguments[1:]:
        total = b.add(total, x)

    def result() -> HloInstruction:
        return b.subtract(b.multiply(p.choose(arguments), p.choose(arguments)), total)

    results = [result() for _ in range(given)]
    return p.returns(results[0] if given == 1 else b.tuple(results))
