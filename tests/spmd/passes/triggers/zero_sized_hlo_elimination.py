"""Arrays without elements, by themselves and as parts of others."""

from __future__ import annotations

from spmd.hlo import HloModule, Opcode
from spmd.shape import ArrayShape
from tests.spmd.passes.triggers.programs import NUMBERS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("zero-sized-hlo-elimination")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    dims = list(p.dims(1, 3))
    axis = p.integer(0, len(dims) - 1)
    empty = (*dims[:axis], 0, *dims[axis + 1 :])
    x = p.parameter(ArrayShape(p.element_type(NUMBERS), empty))
    made = p.b.unary(Opcode.NEGATE, x) if p.chance() else p.b.add(x, p.parameter(x.shape))
    if p.chance():
        made = p.b.transpose(made, p.shuffled(range(len(empty))))
        return p.module(p.after(made))
    joined = p.b.concatenate([p.value(x.array_shape.element_type, dims), made], axis)
    return p.module(p.after(joined))
