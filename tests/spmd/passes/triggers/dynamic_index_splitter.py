"""Slices and updates whose start is one vector."""

from __future__ import annotations

from spmd.hlo import HloModule, Opcode
from spmd.ops.attrs import DynamicSliceAttrs
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("dynamic-index-splitter")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    x = p.value(p.element_type(), p.dims(1, empty=False))
    kind = p.choose((PrimitiveType.S32, PrimitiveType.S64, PrimitiveType.U8))
    start = p.value(kind, (len(x.dims),))
    sizes = tuple(p.integer(1, n) for n in x.dims)
    part = p.b.create(Opcode.DYNAMIC_SLICE, (x, start), DynamicSliceAttrs(sizes))
    update = p.value(x.array_shape.element_type, sizes)
    whole = p.b.create(Opcode.DYNAMIC_UPDATE_SLICE, (x, update, start))
    return p.module(*p.some([part, whole], at_least=1))
