"""Computations that are started asynchronously, one within another too, with work between start and done."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops.attrs import AsyncAttrs
from spmd.shape import ArrayShape, PrimitiveType, TupleShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("async-inliner")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    shape = p.shape()
    started = _started(p, shape)
    x, y = p.value(shape.element_type, shape.dims), p.value(shape.element_type, shape.dims)
    between = []
    for _ in range(p.integer(1, 3)):
        start = _start(p, started, x, y)
        between.append(p.b.add(x, y))
        if p.chance():
            start = p.b.create(Opcode.ASYNC_UPDATE, (start,), AsyncAttrs(), calls=(started,))
        x = p.b.create(Opcode.ASYNC_DONE, (start,), AsyncAttrs(), calls=(started,))
        if p.chance():
            started = _started(p, shape)
    return p.module(p.after(x), y, *between)


def _start(
    p: Program, started: HloComputation, x: HloInstruction, y: HloInstruction
) -> HloInstruction:
    context = ArrayShape(PrimitiveType.S32, ())
    shape = TupleShape((TupleShape((x.shape, y.shape)), started.root.shape, context))
    return p.b.create(Opcode.ASYNC_START, (x, y), AsyncAttrs(), calls=(started,), shape=shape)


def _started(p: Program, shape: ArrayShape) -> HloComputation:
    b, (x, y) = p.computation("started", shape, shape)
    return p.returns(p.choose((b.add(x, y), b.subtract(y, x), b.multiply(x, x))))
