"""Fusions, one within another too."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloModule, Opcode
from spmd.ops.attrs import FusionAttrs
from spmd.shape import ArrayShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("defuser")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    shape = p.shape()
    fused = _fused(p, shape)
    x, y = p.value(shape.element_type, shape.dims), p.value(shape.element_type, shape.dims)
    kind = FusionAttrs(p.choose(("kLoop", "kInput", "kOutput", "kCustom")))
    for _ in range(p.integer(1, 2)):
        x = p.b.create(Opcode.FUSION, (x, y), kind, calls=(fused,), shape=shape)
        fused = _fused(p, shape)
    return p.module(p.after(x), y)


def _fused(p: Program, shape: ArrayShape) -> HloComputation:
    b, (x, y) = p.computation("fused", shape, shape)
    if p.chance(0.3):
        inner, (u,) = p.computation("fused_inside", shape)
        inside = p.returns(inner.negate(u))
        x = b.create(Opcode.FUSION, (x,), FusionAttrs("kLoop"), calls=(inside,), shape=shape)
    return p.returns(p.choose((b.add(x, y), b.subtract(y, x), b.multiply(x, x))))
