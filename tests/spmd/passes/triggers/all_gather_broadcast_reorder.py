"""All-gathers of what was broadcast, along one of its dimensions or a new one, or converted, and of constants."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import part, random_gather
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_WIDENING = (
    (PrimitiveType.BF16, PrimitiveType.F32),
    (PrimitiveType.S8, PrimitiveType.F32),
    (PrimitiveType.F32, PrimitiveType.C64),
    (PrimitiveType.S32, PrimitiveType.S64),
)


@trigger("all-gather-broadcast-reorder")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    x = p.choose((_constant, _broadcast, _broadcast, _broadcast, _converted))(p)
    gathered = random_gather(p, [x], p.integer(0, len(x.dims) - 1))
    return p.module(p.after(gathered), *([x] if p.chance(0.2) else []))


def _broadcast(p: Program) -> HloInstruction:
    source = part(p, p.element_type(), low=0)
    rank = len(source.dims) + p.integer(1, 2)
    dims = p.shuffled(range(rank))[: len(source.dims)]
    sizes = [source.dims[dims.index(d)] if d in dims else p.integer(2, 3) for d in range(rank)]
    return p.b.broadcast(source, dims, sizes)


def _constant(p: Program) -> HloInstruction:
    kind, dims = p.element_type(), p.dims(1, 3, empty=False)
    if p.chance():
        return p.b.full(ArrayShape(kind, dims), p.integer(0, 3))
    return p.b.broadcast(p.constant(kind, (1,)), (0,), (1, *dims))


def _converted(p: Program) -> HloInstruction:
    narrow, wide = p.choose(_WIDENING)
    return p.b.convert(part(p, narrow), wide)
