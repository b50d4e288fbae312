"""All-gathers of one array or two with dimensions of size 1 around the one that grows."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.gathers import random_gather
from tests.spmd.passes.triggers.joined import parts
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("all-gather-remove-degenerate-dims")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    before = [p.choose((1, 1, 2, 3)) for _ in range(p.integer(0, 2))]
    operands = [_operand(p, before) for _ in range(p.integer(1, 2))]
    return p.module(*parts(p, random_gather(p, operands, len(before))))


def _operand(p: Program, before: list[int]) -> HloInstruction:
    """At least the last dimension is of size 1."""
    behind = [p.choose((1, 2, 3)) for _ in range(p.integer(0, 2))]
    return p.value(p.element_type(), [*before, p.integer(1, 3), *behind, 1])
