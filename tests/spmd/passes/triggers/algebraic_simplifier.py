"""Random instructions for every identity of the simplifier, to which it applies."""

from __future__ import annotations

from spmd.hlo import HloModule
from tests.spmd.passes.triggers import algebraic_elementwise, algebraic_shapes, algebraic_smaller
from tests.spmd.passes.triggers.algebraic_forms import FORMS
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

assert algebraic_elementwise
assert algebraic_shapes
assert algebraic_smaller  # imported for what they register


@trigger("algebraic-simplifier")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    made = FORMS[p.choose(list(FORMS))](p)
    return p.module(p.after(made))
