"""All-gathers of one array or two of any types."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import random_gather
from tests.spmd.passes.triggers.joined import parts
from tests.spmd.passes.triggers.programs import ANY_TYPE, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-gather-decomposer")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    dimension = p.integer(0, 2)
    operands = [_operand(p, dimension) for _ in range(p.integer(1, 2))]
    return p.module(*[p.after(x) for x in parts(p, random_gather(p, operands, dimension))])


def _operand(p: Program, dimension: int) -> HloInstruction:
    dims = p.dims(dimension + 1, dimension + 2, empty=False, most=48)
    return p.value(p.element_type(ANY_TYPE), dims)
