"""All-gathers of what was broadcast, along one of its dimensions or a new one, and of constants."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from spmd.shape import ArrayShape
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import part, random_gather
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-gather-broadcast-reorder")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    x = _constant(p) if p.chance(0.2) else _broadcast(p)
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
