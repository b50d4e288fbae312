"""Uniform and normal draws of every type, one after the other and in loops."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import RngAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.loops import counted_loop, results
from tests.spmd.passes.triggers.programs import FLOATS, INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("rng-expander", finite="the range of a draw is finite")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    drawn = [draw(p, p.b) for _ in range(p.integer(1, 3))]
    if p.chance(0.4):
        x = p.value(PrimitiveType.F32, p.dims(empty=False))

        def body(b: Builder, elements: list[HloInstruction]) -> list[HloInstruction]:
            return [b.add(elements[0], _draw(p, b, x.array_shape))]

        drawn += results(p, counted_loop(p, p.integer(0, 3), [x], body), 0)
    return p.module(*drawn)


def draw(p: Program, b: Builder) -> HloInstruction:
    kind = p.element_type((*FLOATS, *INTEGERS, PrimitiveType.PRED))
    return _draw(p, b, ArrayShape(kind, p.dims(empty=False)))


def _draw(p: Program, b: Builder, shape: ArrayShape) -> HloInstruction:
    kind = shape.element_type
    low = b.scalar(kind, 0 if kind is PrimitiveType.PRED else p.integer(0, 4))
    high = b.scalar(kind, 1 if kind is PrimitiveType.PRED else p.integer(5, 100))
    normal = kind.is_floating and p.chance()
    attrs = RngAttrs("rng_normal" if normal else "rng_uniform")
    return b.create(Opcode.RNG, (low, high), attrs, shape=shape)
