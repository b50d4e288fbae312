"""Arrays with run-time sizes, sorted and reversed, with scalars and sizes that leave the region and come back."""

from __future__ import annotations

from spmd.device import ReductionKind
from spmd.hlo import HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import INTEGERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_S32 = PrimitiveType.S32


@trigger("dynamic-region-outliner")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind = p.element_type(INTEGERS)
    x = p.value(kind, p.dims(1, 3, empty=False))
    d = p.integer(0, len(x.dims) - 1)
    given = p.parameter(ArrayShape(_S32, ()))
    size = p.b.clamp(p.b.scalar(_S32, 0), given, p.b.scalar(_S32, x.dims[d]))
    sized = p.b.create(Opcode.SET_DIMENSION_SIZE, (x, size), DimensionsAttrs((d,)))
    turned = p.b.reverse(sized, (d,))
    asked = p.b.create(Opcode.GET_DIMENSION_SIZE, (turned,), DimensionsAttrs((d,)))
    total = p.b.reduce(turned, tuple(range(len(x.dims))), ReductionKind.SUM)
    results = [total, asked]
    if p.chance():
        again = p.b.create(Opcode.SET_DIMENSION_SIZE, (x, asked), DimensionsAttrs((d,)))
        product = p.b.multiply(turned, again)
        results.append(p.b.reduce(product, tuple(range(len(x.dims))), ReductionKind.SUM))
    return p.module(*results, *p.some([x]))
